// Writes a record and reads it as a member of a group by franz-go, with the login and the TLS of the environment.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	topic := os.Getenv("TOPIC")
	user, password := os.Getenv("USERNAME"), os.Getenv("PASSWORD")
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Getenv("ADDRESS")), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordRetries(2), kgo.RequestRetries(2),
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: password}.AsMechanism(),
	}
	if mechanism, is := mechanisms[os.Getenv("MECHANISM")]; is {
		options = append(options, kgo.SASL(mechanism))
	}
	if ca := os.Getenv("CA"); ca != "" {
		text, err := os.ReadFile(ca)
		check(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		config := &tls.Config{RootCAs: pool}
		if own := os.Getenv("OWN"); own != "" {
			pair, err := tls.LoadX509KeyPair(own, own)
			check(err)
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("record")}).FirstErr())
	fetches := client.PollRecords(ctx, 1)
	check(fetches.Err())
	check(client.CommitUncommittedOffsets(ctx))
	fmt.Println(string(fetches.Records()[0].Value))
	client.Close()
}
