// A transactional producer of franz-go. Each line on its input is a step, which it answers with `ok` or the error:
// `begin`, `send VALUE`, `offset GROUP N`, `commit`, `abort`.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 20 * time.Second

func commitOffset(ctx context.Context, kafka *kgo.Client, id, group string, offset int64) error {
	producer, epoch, err := kafka.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer, epoch, group
	added, err := add.RequestWith(ctx, kafka)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return err
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = id, producer, epoch, group
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = "t"
	topic.Partitions = append(topic.Partitions, partition)
	commit.Topics = append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, kafka)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
}

func step(kafka *kgo.Client, id string, words []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch words[0] {
	case "init":
		_, _, err := kafka.ProducerID(ctx)
		return err
	case "begin":
		return kafka.BeginTransaction()
	case "send":
		return kafka.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(words[1])}).FirstErr()
	case "offset":
		offset, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return err
		}
		return commitOffset(ctx, kafka, id, words[1], offset)
	case "commit":
		return kafka.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return kafka.EndTransaction(ctx, kgo.TryAbort)
	}
	return fmt.Errorf("no such step: %s", words[0])
}

func main() {
	address, id := os.Args[1], os.Args[2]
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(address), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.TransactionTimeout(60*time.Second),
	)
	if err != nil {
		panic(err)
	}
	defer kafka.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := step(kafka, id, strings.Fields(lines.Text())); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
	}
}
