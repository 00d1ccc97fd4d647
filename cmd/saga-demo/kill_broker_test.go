//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

func openBroker(t *testing.T, url string) (*amqp091.Connection, *amqp091.Channel) {
	t.Helper()
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		conn.Close()
		t.Fatal(err)
	}
	return conn, ch
}

// untilConsumed waits until a queue has that many consumers and nothing is ready
// in it.
func untilConsumed(t *testing.T, url, queue string, consumers int) {
	t.Helper()
	conn, _ := openBroker(t, url)
	defer conn.Close()
	var q amqp091.Queue
	var err error
	wait(t, func() string { return fmt.Sprintf("queue %s: %+v, %v", queue, q, err) }, func() bool {
		ch, err2 := conn.Channel()
		if err2 != nil {
			t.Fatal(err2)
		}
		defer ch.Close()
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil && q.Consumers >= consumers && q.Messages == 0
	})
}

// A spy is a queue that gets a copy of every pointer.
type spy struct {
	ch    *amqp091.Channel
	queue string
}

func openSpy(t *testing.T, url, prefix string) *spy {
	t.Helper()
	conn, ch := openBroker(t, url)
	t.Cleanup(func() { conn.Close() })
	if err := ch.ExchangeDeclare(prefix, amqp091.ExchangeTopic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	if err == nil {
		err = ch.QueueBind(q.Name, "execute.#", prefix, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &spy{ch: ch, queue: q.Name}
}

// executions returns how many pointers there have been to each execution.
func (s *spy) executions(t *testing.T) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for {
		m, ok, err := s.ch.Get(s.queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return seen
		}
		var p saga.Pointer
		if err := json.Unmarshal(m.Body, &p); err != nil {
			t.Fatal(err)
		}
		seen[p.Execution.String()]++
	}
}

// removeQueues removes what the processes declared in a broker that others use.
func removeQueues(t *testing.T, url, prefix string) {
	conn, ch := openBroker(t, url)
	defer conn.Close()
	for _, q := range []string{prefix + ".execute." + shop, prefix + ".execute." + office, prefix + ".dead"} {
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			t.Error(err)
		}
	}
	for _, x := range []string{prefix, prefix + ".dead"} {
		if err := ch.ExchangeDelete(x, false, false); err != nil {
			t.Error(err)
		}
	}
}
