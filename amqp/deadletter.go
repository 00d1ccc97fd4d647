package amqp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

const (
	shownBody = 1 << 10 // bytes of a body
	shownText = 255     // bytes of a property or header
)

// A DeadLetter is a message in the queue for those that nobody can make sense
// of. All of its text can be shown as it is: what cannot be printed is escaped
// as in Go, and what is long is cut.
type DeadLetter struct {
	// ID names the message for a [DeadQuery]. It is made of what the message
	// holds: two that are equal have the same one, and share their fate.
	ID string `json:"id"`
	// Reason is why it was put aside: one of the Dead constants of package
	// saga, "malformed" or "command_refused" by a consumer; by the broker itself "rejected",
	// "delivery_limit", "expired" or "maxlen"; "" when nobody said.
	Reason string `json:"reason,omitempty"`
	// Error says what is malformed, or why the command was refused.
	Error string `json:"error,omitempty"`
	// Partition is the one in whose queue it was, "" when that is not known.
	Partition string `json:"partition,omitempty"`
	// SentAt is when it was sent, and DeadAt when it was put aside, both to the
	// second; zero when that is not known.
	SentAt time.Time `json:"sent_at,omitzero"`
	DeadAt time.Time `json:"dead_at,omitzero"`
	// App is who sent it.
	App string `json:"app,omitempty"`
	// MessageID is the id it was sent with.
	MessageID string `json:"message_id,omitempty"`
	// Pointer is what the body says; nil if it is none. Of one with a V greater
	// than saga.PointerVersion nothing else is sure.
	Pointer *saga.Pointer `json:"pointer,omitempty"`
	// Command says that it is a command, and which: start, signal or cancel, or
	// "unknown".
	Command string `json:"command,omitempty"`
	// Body is its beginning, of Size bytes.
	Body string `json:"body"`
	Size int64  `json:"size"`
}

// letter is a dead letter as it came.
type letter struct {
	DeadLetter
	d       amqp091.Delivery
	saga    string // that a command is for
	refusal string // why it cannot be replayed
}

func (l layout) letter(d amqp091.Delivery) *letter {
	text := func(header string) string {
		s, _ := d.Headers[header].(string)
		return s
	}
	var died amqp091.Table // what the broker noted
	if deaths, _ := d.Headers["x-death"].([]any); len(deaths) > 0 {
		died, _ = deaths[0].(amqp091.Table)
	}
	of := func(key string) string {
		s, _ := died[key].(string)
		return s
	}

	x := &letter{d: d}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(d.MessageId), d.MessageId, d.Body))
	x.ID = hex.EncodeToString(sum[:8])
	x.Reason = printable(first(text("saga-reason"), text("x-first-death-reason"), of("reason")), shownText)
	x.Error = printable(text("saga-error"), maxDeadError)
	x.App = printable(d.AppId, shownText)
	x.MessageID = printable(first(text("saga-message"), d.MessageId), shownText)
	x.SentAt = d.Timestamp.UTC()
	if d.Timestamp.IsZero() {
		x.SentAt = time.Time{}
	}
	if at, err := time.Parse(time.RFC3339, text("saga-dead-at")); err == nil {
		x.DeadAt = at.UTC()
	} else if at, ok := died["time"].(time.Time); ok {
		x.DeadAt = at.UTC()
	}
	death := first(text("x-first-death-queue"), of("queue"))
	queue := strings.TrimPrefix(death, l.queue(""))
	var key string
	if rest, ok := strings.CutPrefix(d.RoutingKey, "execute."); ok {
		key, _, _ = strings.Cut(rest, ".")
	}
	for _, p := range []string{text("saga-partition"), queue, key} {
		if partitionRule.MatchString(p) {
			x.Partition = p
			break
		}
	}
	x.Size = int64(len(d.Body))
	if size, ok := d.Headers["saga-size"].(int64); ok && size > x.Size {
		x.Size = size
	}
	x.Body = printable(string(d.Body[:min(len(d.Body), shownBody)]), shownBody)

	if text("saga-queue") == commandKey || death == l.commands() {
		x.readCommand()
		return x
	}
	p, err := read(&d)
	switch {
	case err != nil:
		x.refusal = "it is no pointer: " + printable(err.Error(), maxDeadError)
		return x
	case p.V > saga.PointerVersion:
		x.refusal = fmt.Sprintf("it was written by a newer build: version %d, this one knows %d", p.V, saga.PointerVersion)
	case x.Partition == "":
		x.refusal = "nothing says of which partition it is"
	}
	p.Saga, p.Step, p.TraceParent = printable(p.Saga, maxName), printable(p.Step, maxName), printable(p.TraceParent, maxTrace)
	p.Direction = saga.Direction(printable(string(p.Direction), maxName))
	x.Pointer = &p
	return x
}

// readCommand says what a command is that was put aside.
func (x *letter) readCommand() {
	var c struct{ Command, Saga string }
	_ = json.Unmarshal(x.d.Body, &c)
	x.Partition, x.Command, x.saga = "", "unknown", c.Saga
	switch c.Command {
	case "start", "signal", "cancel":
		x.Command = c.Command
	}
	switch {
	case x.Size > int64(len(x.d.Body)):
		x.refusal = "it is not whole: its body was cut"
	case x.MessageID == "":
		x.refusal = "it has no id"
	}
}

func first(s ...string) string {
	i := slices.IndexFunc(s, func(s string) bool { return s != "" })
	if i < 0 {
		return ""
	}
	return s[i]
}

// printable returns at most n bytes of s, and all of them harmless on a
// terminal.
func printable(s string, n int) string {
	s = s[:min(len(s), n)]
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

// A DeadQuery selects dead letters: those that all of its fields that are set
// agree with.
type DeadQuery struct {
	IDs       []string  // one of these
	Reason    string    // put aside for this
	Partition string    // from this partition's queue
	Saga      string    // pointing at an execution of this saga, or a command for it
	Before    time.Time // put aside before this
	// All has to be set to replay or purge when nothing else is.
	All bool

	// Scan is how many messages are looked at, from the head of the queue on.
	// Defaults to 1000; at most 100000. The broker holds that many for the one
	// who looks, and nobody else sees them meanwhile.
	Scan int
}

const maxScan = 100_000

func (q *DeadQuery) check(acts bool) error {
	switch {
	case q.Scan < 0 || q.Scan > maxScan:
		return fmt.Errorf("%w: amqp: DeadQuery.Scan is %d, want 0 to %d", saga.ErrInvalid, q.Scan, maxScan)
	case acts && !q.All && len(q.IDs) == 0 && q.Reason == "" && q.Partition == "" && q.Saga == "" && q.Before.IsZero():
		return fmt.Errorf("%w: amqp: DeadQuery selects nothing: set All, or another field", saga.ErrInvalid)
	}
	return nil
}

func (q *DeadQuery) selects(x *letter) bool {
	d := &x.DeadLetter
	return (len(q.IDs) == 0 || slices.Contains(q.IDs, d.ID)) &&
		(q.Reason == "" || q.Reason == d.Reason) &&
		(q.Partition == "" || q.Partition == d.Partition) &&
		(q.Saga == "" || d.Pointer != nil && q.Saga == d.Pointer.Saga || x.saga == q.Saga) &&
		(q.Before.IsZero() || !d.DeadAt.IsZero() && d.DeadAt.Before(q.Before))
}
