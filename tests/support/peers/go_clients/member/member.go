// Package member has a member of a group say what it does and do as it is told, as `member_process.py` describes.
package member

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	often  = 100 * time.Millisecond
	moment = 50 * time.Millisecond
)

// Given is what the program was told.
type Given struct {
	Address, Group, Topic string
	Options               map[string]any
}

// Text returns an option, "" if it was not given.
func (given Given) Text(name string) string {
	text, _ := given.Options[name].(string)
	return text
}

// Time returns an option in milliseconds, or another time if it was not given.
func (given Given) Time(name string, other time.Duration) time.Duration {
	if ms, is := given.Options[name].(float64); is {
		return time.Duration(ms) * time.Millisecond
	}
	return other
}

// Client is a member by some library: `Poll` returns soon, and `Commit` with its answer.
type Client interface {
	Subscribe() error
	Poll(time.Duration)
	Commit(map[int32]int64) error
	// Close leaves the group; Subscribe makes it a member again.
	Close() error
}

// Book has what a member owns and the next offsets of what it has read; libraries call from threads of their own.
type Book struct {
	mutex sync.Mutex
	owned map[int32]bool
	done  map[int32]int64
}

// Gain notes partitions that the member has from now on.
func (book *Book) Gain(partitions []int32) {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	for _, each := range partitions {
		book.owned[each] = true
	}
}

// Lose notes partitions that it has no more.
func (book *Book) Lose(partitions []int32) {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	for _, each := range partitions {
		delete(book.owned, each)
	}
}

// Read notes a record that was read.
func (book *Book) Read(partition int32, offset int64) {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	book.done[partition] = offset + 1
}

func (book *Book) look() ([]int32, map[int32]int64) {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	owned, done := []int32{}, map[int32]int64{}
	for each := range book.owned {
		owned = append(owned, each)
		if offset, is := book.done[each]; is {
			done[each] = offset
		}
	}
	slices.Sort(owned)
	return owned, done
}

// Complain prints what failed.
func Complain(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	fmt.Printf("error %T %s\n", err, text)
}

// Run makes a member and works until its standard input says "close".
func Run(start func(Given, *Book) Client) {
	given := Given{Address: os.Args[1], Group: os.Args[2], Topic: os.Args[3]}
	if err := json.Unmarshal([]byte(os.Args[4]), &given.Options); err != nil {
		panic(err)
	}
	book := &Book{owned: map[int32]bool{}, done: map[int32]int64{}}
	client := start(given, book)
	words := make(chan string, 16)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			words <- strings.TrimSpace(lines.Text())
		}
	}()
	must(client.Subscribe())
	work(client, book, words, given.Topic)
	fmt.Println("closed")
}

func work(client Client, book *Book, words <-chan string, topic string) {
	owned, committed, committedAt := []int32{}, map[int32]int64{}, time.Time{}
	isOften, isMember := false, true
	for {
		select {
		case word := <-words:
			switch word {
			case "close":
				if isMember {
					must(client.Close())
				}
				return
			case "leave":
				must(client.Close())
				isMember = false
			case "return":
				must(client.Subscribe())
				isMember = true
			default:
				isOften = word == "often"
			}
		default:
		}
		if isMember {
			client.Poll(moment)
		} else {
			time.Sleep(moment)
		}
		now, done := book.look()
		if !slices.Equal(now, owned) {
			owned = now
			fmt.Println("held" + listed(topic, owned))
		}
		isDue := isOften && time.Since(committedAt) >= often
		if isMember && len(done) > 0 && (isDue || !equal(done, committed)) {
			committed, committedAt = done, time.Now()
			if err := client.Commit(done); err != nil {
				Complain(err)
			} else {
				fmt.Println("committed" + placed(done))
			}
		}
	}
}

func must(err error) {
	if err != nil {
		Complain(err)
		os.Exit(1)
	}
}

func equal(one, other map[int32]int64) bool {
	if len(one) != len(other) {
		return false
	}
	for each, offset := range one {
		if found, is := other[each]; !is || found != offset {
			return false
		}
	}
	return true
}

func listed(topic string, partitions []int32) string {
	text := ""
	for _, each := range partitions {
		text += fmt.Sprintf(" %s-%d", topic, each)
	}
	return text
}

func placed(done map[int32]int64) string {
	text := ""
	for partition, offset := range done {
		text += fmt.Sprintf(" %d:%d", partition, offset)
	}
	return text
}
