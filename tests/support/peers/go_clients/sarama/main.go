// A member of a group by sarama.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"os"
	"sync"
	"time"

	"clients/member"

	"github.com/IBM/sarama"
)

type client struct {
	given   member.Given
	book    *member.Book
	group   sarama.ConsumerGroup
	cancel  context.CancelFunc
	ended   chan struct{}
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
}

func (own *client) Subscribe() error {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.ClientID = cmp.Or(own.given.Text("client_id"), "sarama")
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	config.Consumer.Group.Session.Timeout = own.given.Time("session_timeout_ms", 10*time.Second)
	config.Consumer.Group.Heartbeat.Interval = own.given.Time("heartbeat_interval_ms", 3*time.Second)
	config.Consumer.Group.InstanceId = own.given.Text("group_instance_id")
	group, err := sarama.NewConsumerGroup([]string{own.given.Address}, own.given.Group, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	own.group, own.cancel, own.ended = group, cancel, make(chan struct{})
	go func() {
		for err := range group.Errors() {
			member.Complain(err)
		}
	}()
	go func() {
		defer close(own.ended)
		for ctx.Err() == nil {
			err := group.Consume(ctx, []string{own.given.Topic}, own)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			if err != nil && ctx.Err() == nil {
				member.Complain(err)
			}
		}
	}()
	return nil
}

func (own *client) Setup(session sarama.ConsumerGroupSession) error {
	own.mutex.Lock()
	defer own.mutex.Unlock()
	own.session = session
	own.book.Gain(session.Claims()[own.given.Topic])
	return nil
}

func (own *client) Cleanup(session sarama.ConsumerGroupSession) error {
	own.mutex.Lock()
	defer own.mutex.Unlock()
	own.session = nil
	own.book.Lose(session.Claims()[own.given.Topic])
	return nil
}

func (own *client) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		own.book.Read(record.Partition, record.Offset)
	}
	return nil
}

func (own *client) Poll(wait time.Duration) { time.Sleep(wait) }

func (own *client) Commit(done map[int32]int64) error {
	own.mutex.Lock()
	defer own.mutex.Unlock()
	if own.session != nil {
		for partition, offset := range done {
			// One of them makes it new whether it is or not: what is known is not sent.
			own.session.MarkOffset(own.given.Topic, partition, offset, "")
			own.session.ResetOffset(own.given.Topic, partition, offset, "")
		}
		own.session.Commit()
	}
	return nil
}

func (own *client) Close() error {
	own.cancel()
	<-own.ended
	return own.group.Close()
}

func main() {
	sarama.Logger = log.New(os.Stderr, "INFO ", 0)
	member.Run(func(given member.Given, book *member.Book) member.Client { return &client{given: given, book: book} })
}
