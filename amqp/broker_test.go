package amqp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
)

func TestOpenListsAllFaults(t *testing.T) {
	_, err := amqp.Open(t.Context(), amqp.Config{
		URLs: []string{"http://h/", "amqp://h1,h2/"}, Prefix: "A b", Topology: "maybe", Queues: "stream",
		Window: -1, Heartbeat: 1500 * time.Millisecond, Timeout: -1, Reconnect: -1, Name: strings.Repeat("n", 101),
	})
	if !errors.Is(err, saga.ErrInvalid) {
		t.Fatalf("Open: %v, want one that wraps ErrInvalid", err)
	}
	for _, want := range []string{"URLs[0]", "URLs[1]", "Prefix", "Topology", "Queues", "Window", "Heartbeat", "Timeout", "Reconnect", "Name"} {
		if !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if _, err := amqp.Open(t.Context(), amqp.Config{}); err == nil || !strings.Contains(err.Error(), "URLs is required") {
		t.Errorf("Open without URLs: %v", err)
	}
}

func TestNewConsumerListsAllFaults(t *testing.T) {
	_, err := amqp.NewConsumer(nil, nil, amqp.ConsumerConfig{Workers: map[string]int{"a.b": 1, "c": 0}, AckAfter: -1})
	if !errors.Is(err, saga.ErrInvalid) {
		t.Fatalf("NewConsumer: %v, want one that wraps ErrInvalid", err)
	}
	for _, want := range []string{"broker", "engine", `"a.b"`, `Workers["c"]`, "AckAfter"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestPasswordsAreNeverShown(t *testing.T) {
	noLeaks(t)
	const secret = "s3cr3t"
	for _, url := range []string{"amqp://u:" + secret + "#x@h/", "amqp://u:" + secret + "@h:port/", "http://u:" + secret + "@h/", "amqp://u:" + secret + "@h:99999999999/"} {
		if _, err := amqp.Open(t.Context(), amqp.Config{URLs: []string{url}}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("Open(%q): %v", url, err)
		}
	}
	host := strings.TrimPrefix(testenv.AMQP(t), "amqp://guest:guest@")
	for _, row := range []struct{ url, want string }{
		{"amqp://guest:" + secret + "@" + host, "check user, password"},
		{"amqp://guest:" + secret + "@127.0.0.1:1/", "connection refused"},
		{testenv.AMQP(t) + "no-such-vhost", "virtual host"},
	} {
		var log logbook
		b := open(t, amqp.Config{URLs: []string{row.url}, Logger: log.logger()})
		ctx := within(t, 20*time.Second)
		if row.want == "connection refused" {
			ctx = within(t, time.Second)
		}
		err := b.Ready(ctx)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("Ready: %v, want %q in it", err, row.want)
		}
		eventually(t, "the trouble is logged", func() bool { return strings.Contains(log.String(), "the broker is away") })
		for _, said := range []string{err.Error(), log.String()} {
			if strings.Contains(said, secret) || strings.Contains(said, "guest:guest") {
				t.Errorf("a password is shown: %s", said)
			}
		}
		if row.want != "connection refused" && !errors.Is(err, amqp.ErrMisconfigured) {
			t.Errorf("Ready: %v, want ErrMisconfigured", err)
		}
		if err := b.Close(within(t, 10*time.Second)); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func TestDeadURLIsPassedOver(t *testing.T) {
	noLeaks(t)
	// In any order: one of the tries to come first meets the dead one.
	b := open(t, amqp.Config{URLs: []string{"amqp://guest:guest@127.0.0.1:1/", "amqp://guest:guest@127.0.0.1:2/", testenv.AMQP(t)}})
	ready(t, b)
}

func TestAuthIsAskedForEachConnection(t *testing.T) {
	noLeaks(t)
	var asked atomic.Int32
	url := strings.Replace(testenv.AMQP(t), "guest:guest@", "", 1)
	b := open(t, amqp.Config{URLs: []string{url}, Auth: func(context.Context) (string, string, error) {
		if asked.Add(1) == 1 {
			return "", "", errors.New("the vault is sealed")
		}
		return "guest", "guest", nil
	}})
	ready(t, b)
	if n := asked.Load(); n != 2 {
		t.Errorf("credentials were asked for %d times, want 2", n)
	}
}

func TestPublishedMessage(t *testing.T) {
	noLeaks(t)
	prefix := testenv.Prefix(t)
	b := open(t, amqp.Config{Prefix: prefix, Name: "shop"})
	ready(t, b)
	p := pointer()
	if err := b.Publish(t.Context(), "eu", p); err != nil {
		t.Fatal(err)
	}
	d := take(t, raw(t, testenv.AMQP(t)), prefix+".execute.eu")
	if d.RoutingKey != "execute.eu.order" || d.Exchange != prefix {
		t.Errorf("it came by exchange %q with key %q", d.Exchange, d.RoutingKey)
	}
	if d.ContentType != "application/json" || d.DeliveryMode != amqp091.Persistent || d.Type != "saga.step.v1" ||
		d.MessageId == "" || d.CorrelationId != p.Execution.String() || d.AppId != "shop" || time.Since(d.Timestamp) > time.Minute {
		t.Errorf("properties: %+v", d)
	}
	want := amqp091.Table{
		"saga-name": "order", "saga-execution": p.Execution.String(), "saga-epoch": int64(1), "saga-step": "a",
		"saga-direction": "execute", "traceparent": p.TraceParent,
	}
	for k, v := range want {
		if d.Headers[k] != v {
			t.Errorf("header %s is %v, want %v", k, d.Headers[k], v)
		}
	}
	got, err := amqp.Decode(d.Body)
	if got.TraceParent = p.TraceParent; err != nil || got != p {
		t.Errorf("Decode: %+v, %v, want %+v", got, err, p)
	}
}

func TestPublishRefusesWhatNoKeyHolds(t *testing.T) {
	noLeaks(t)
	b := open(t, amqp.Config{})
	ready(t, b)
	p := pointer()
	if err := b.Publish(t.Context(), "a.b", p); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("partition with a dot: %v", err)
	}
	p.Saga = strings.Repeat("s", 250)
	if err := b.Publish(t.Context(), "a", p); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("long saga: %v", err)
	}
	if !b.Connected() {
		t.Error("the connection is gone")
	}
}

func TestUnroutableIsReported(t *testing.T) {
	noLeaks(t)
	prefix := testenv.Prefix(t)
	ready(t, open(t, amqp.Config{Prefix: prefix})) // declares
	b := open(t, amqp.Config{Prefix: prefix, Topology: amqp.Verify})
	r := make(reports, 10)
	b.Report(r.report)
	ready(t, b)
	if err := b.Publish(t.Context(), "nowhere", pointer()); err != nil {
		t.Fatal(err)
	}
	r.want(t, "nowhere", "pointer.unroutable", "execute.nowhere.order", "NO_ROUTE")
}

func TestVerifyNamesWhatIsMissing(t *testing.T) {
	noLeaks(t)
	prefix := testenv.Prefix(t)
	b := open(t, amqp.Config{Prefix: prefix, Topology: amqp.Verify})
	err := b.Ready(within(t, patience))
	if !errors.Is(err, amqp.ErrMisconfigured) || !strings.Contains(err.Error(), prefix+".dead") || !strings.Contains(err.Error(), "Topology: Declare") {
		t.Errorf("Ready: %v, want an ErrMisconfigured that names the exchange and what to do", err)
	}
}

func TestOtherArgumentsAreNamed(t *testing.T) {
	noLeaks(t)
	prefix := testenv.Prefix(t)
	ready(t, open(t, amqp.Config{Prefix: prefix}))
	b := open(t, amqp.Config{Prefix: prefix, Queues: amqp.Quorum})
	err := b.Ready(within(t, patience))
	if !errors.Is(err, amqp.ErrMisconfigured) || !strings.Contains(err.Error(), "x-queue-type") || !strings.Contains(err.Error(), "another Prefix") {
		t.Errorf("Ready: %v, want the broker's words and advice", err)
	}
}

func TestDepth(t *testing.T) {
	noLeaks(t)
	b := open(t, amqp.Config{})
	if _, _, err := b.Depth(t.Context(), "default"); err == nil && !b.Connected() {
		t.Error("Depth without a connection: no error")
	}
	ready(t, b)
	if _, _, err := b.Depth(t.Context(), "default"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("Depth of no queue: %v", err)
	}
	for range 3 {
		if err := b.Publish(t.Context(), "default", pointer()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "3 are ready", func() bool {
		ready, consumers, err := b.Depth(t.Context(), "default")
		return err == nil && ready == 3 && consumers == 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.Depth(ctx, "default"); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Depth with an ended ctx: %v", err)
	}
}

func TestCloseFlushes(t *testing.T) {
	noLeaks(t)
	prefix := testenv.Prefix(t)
	b := open(t, amqp.Config{Prefix: prefix})
	r := make(reports, 1000)
	b.Report(r.report)
	ready(t, b)
	n := 0
	for range 200 {
		if err := b.Publish(t.Context(), "default", pointer()); err == nil {
			n++
		} else if !errors.Is(err, amqp.ErrBusy) {
			t.Fatal(err)
		}
	}
	if err := b.Close(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), "default", pointer()); !errors.Is(err, amqp.ErrClosed) {
		t.Errorf("Publish after Close: %v", err)
	}
	if _, _, err := b.Depth(t.Context(), "default"); !errors.Is(err, amqp.ErrClosed) {
		t.Errorf("Depth after Close: %v", err)
	}
	if b.Connected() {
		t.Error("connected after Close")
	}
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v", err)
	}
	q, err := raw(t, testenv.AMQP(t)).QueueDeclarePassive(prefix+".execute.default", true, false, false, false, nil)
	if err != nil || q.Messages != n {
		t.Errorf("the queue holds %d messages, want %d: %v", q.Messages, n, err)
	}
	if len(r) > 0 {
		t.Errorf("reported: %s", <-r)
	}
}

func TestFullWindowIsAnErrorAtOnce(t *testing.T) {
	noLeaks(t)
	b := open(t, amqp.Config{Window: 1})
	ready(t, b)
	eventually(t, "Publish refuses", func() bool {
		for range 100 {
			if errors.Is(b.Publish(t.Context(), "default", pointer()), amqp.ErrBusy) {
				return true
			}
		}
		return false
	})
}

func TestPublishWithoutBrokerIsAnErrorAtOnce(t *testing.T) {
	noLeaks(t)
	b := open(t, amqp.Config{URLs: []string{"amqp://127.0.0.1:1/"}})
	if err := b.Publish(t.Context(), "default", pointer()); !errors.Is(err, amqp.ErrAway) {
		t.Errorf("Publish: %v, want ErrAway", err)
	}
	if b.Connected() {
		t.Error("connected to nothing")
	}
}

// TestHungPeer: a peer that accepts connections and says nothing.
func TestHungPeer(t *testing.T) {
	noLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan net.Conn, 100)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came <- c
		}
	}()
	defer func() {
		l.Close()
		<-over
		for len(came) > 0 {
			(<-came).Close()
		}
	}()
	b := open(t, amqp.Config{URLs: []string{"amqp://" + l.Addr().String() + "/"}, Timeout: 200 * time.Millisecond})
	(<-came).Close()
	eventually(t, "another try", func() bool { return len(came) > 0 })
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// TestPeerHangsLater: the broker answers the handshake and everything until it
// goes quiet with its socket open.
func TestPeerHangsLater(t *testing.T) {
	noLeaks(t)
	proxy := newProxy(t, hostOf(testenv.AMQP(t)))
	b := open(t, amqp.Config{URLs: []string{"amqp://guest:guest@" + proxy.addr() + "/"}, Timeout: 500 * time.Millisecond})
	r := make(reports, 100)
	b.Report(r.report)
	ready(t, b)
	proxy.hang()
	if err := b.Publish(t.Context(), "default", pointer()); err != nil {
		t.Fatal(err)
	}
	r.want(t, "pointer.unpublished")
	eventually(t, "it is known to be away", func() bool { return !b.Connected() })
	proxy.unhang()
	ready(t, b)

	proxy.hang()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = b.Publish(t.Context(), "default", pointer())
	if err := b.Close(ctx); err == nil {
		t.Error("Close with an unconfirmed pointer: no error")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// TestTLSConfigIsNotWrittenTo: amqp091 writes the name of the host into it, and
// the next host would be verified against that.
func TestTLSConfigIsNotWrittenTo(t *testing.T) {
	noLeaks(t)
	proxy := newProxy(t, hostOf(testenv.AMQP(t))) // speaks no TLS
	cfg := &tls.Config{}
	b := open(t, amqp.Config{URLs: []string{"amqps://" + proxy.addr() + "/"}, TLS: cfg, Timeout: time.Second})
	if err := b.Ready(within(t, 500*time.Millisecond)); err == nil {
		t.Error("ready without TLS on the other side")
	}
	_ = b.Close(within(t, 10*time.Second))
	if cfg.ServerName != "" {
		t.Errorf("ServerName became %q", cfg.ServerName)
	}
	if _, err := amqp.Open(t.Context(), amqp.Config{URLs: []string{"amqp://h/"}, TLS: cfg}); err == nil {
		t.Error("TLS set and an amqp URL: no error")
	}
}

func TestPlan(t *testing.T) {
	got, err := amqp.Plan(amqp.Config{Queues: amqp.Quorum}, "default")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`exchange saga.dead type=fanout durable`,
		`queue saga.dead durable x-queue-type=quorum`,
		`binding saga.dead to saga.dead key=""`,
		`exchange saga type=topic durable`,
		`queue saga.execute.default durable x-dead-letter-exchange=saga.dead x-dead-letter-strategy=at-least-once x-delivery-limit=200 x-overflow=reject-publish x-queue-type=quorum`,
		`binding saga.execute.default to saga key="execute.default.#"`,
	}
	if lines := strings.Split(strings.TrimSpace(got), "\n"); !slices.Equal(lines, want) {
		t.Errorf("Plan:\n%s", got)
	}
}
