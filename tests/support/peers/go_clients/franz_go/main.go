// A member of a group by franz-go.
package main

import (
	"cmp"
	"context"
	"os"
	"time"

	"clients/member"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 20 * time.Second

type client struct {
	given member.Given
	book  *member.Book
	kafka *kgo.Client
}

func (own *client) Subscribe() error {
	given, book := own.given, own.book
	balancers := map[string]kgo.GroupBalancer{
		"":           kgo.CooperativeStickyBalancer(),
		"range":      kgo.RangeBalancer(),
		"roundrobin": kgo.RoundRobinBalancer(),
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(given.Address), kgo.ConsumeTopics(given.Topic), kgo.ConsumerGroup(given.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.Balancers(balancers[given.Text("partition_assignment_strategy")]),
		kgo.SessionTimeout(given.Time("session_timeout_ms", 45*time.Second)),
		kgo.HeartbeatInterval(given.Time("heartbeat_interval_ms", 3*time.Second)),
		kgo.ClientID(cmp.Or(given.Text("client_id"), "franz-go")), kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, found map[string][]int32) {
			book.Gain(found[given.Topic])
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, found map[string][]int32) {
			book.Lose(found[given.Topic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, found map[string][]int32) {
			book.Lose(found[given.Topic])
		}),
	}
	if given.Text("group_protocol") == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if name := given.Text("group_instance_id"); name != "" {
		options = append(options, kgo.InstanceID(name))
	}
	made, err := kgo.NewClient(options...)
	own.kafka = made
	return err
}

func (own *client) Poll(wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	fetches := own.kafka.PollFetches(ctx)
	fetches.EachError(func(_ string, _ int32, err error) {
		if ctx.Err() == nil {
			member.Complain(err)
		}
	})
	fetches.EachRecord(func(record *kgo.Record) { own.book.Read(record.Partition, record.Offset) })
}

func (own *client) Commit(done map[int32]int64) error {
	offsets := map[int32]kgo.EpochOffset{}
	for partition, offset := range done {
		offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var failed error
	own.kafka.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{own.given.Topic: offsets}, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		failed = err
		if answer != nil {
			for _, topic := range answer.Topics {
				for _, row := range topic.Partitions {
					if failed == nil {
						failed = kerr.ErrorForCode(row.ErrorCode)
					}
				}
			}
		}
	})
	return failed
}

func (own *client) Close() error {
	own.kafka.Close()
	return nil
}

func main() {
	member.Run(func(given member.Given, book *member.Book) member.Client { return &client{given: given, book: book} })
}
