package amqp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

const (
	closeWithin = 2 * time.Second // for the farewell of a session
	repeatAfter = time.Minute     // for the same trouble in the log
)

// A link keeps a connection: it dials, hands the session to use, tears it down
// when use returns, waits a little, and dials again, until its ctx is done.
type link struct {
	cfg     *Config
	role    string
	dialer  *dialer
	use     func(ctx context.Context, l *link, s *session) error // until the session has ended, or ctx; returns why
	away    func(err error)                                      // told why there is no session
	current *atomic.Pointer[session]                             // if not nil: the session, until it is torn down
	answers *watched[struct{}]                                   // set by each link of the process that gets through
	trouble trouble
}

func newLink(cfg *Config, answers *watched[struct{}], role string, use func(context.Context, *link, *session) error, away func(error)) *link {
	return &link{
		cfg: cfg, role: role, dialer: newDialer(cfg, role), use: use, away: away, answers: answers,
		trouble: trouble{log: cfg.Logger.With("connection", role)},
	}
}

func (l *link) run(ctx context.Context) {
	retry := newRetries(l.cfg)
	woken := false // by another link, the last time
	for ctx.Err() == nil {
		_, answered := l.answers.get()
		s, err := l.dialer.dial(ctx)
		var lived time.Duration
		if err == nil {
			if l.current != nil {
				l.current.Store(s)
			}
			err = l.use(ctx, l, s)
			lived = time.Since(s.began)
			s.close(closeWithin)
			_, answered = l.answers.get() // that of this session says nothing any more
		}
		if ctx.Err() != nil {
			return
		}
		l.away(err)
		l.trouble.warn("amqp: the broker is away", err)
		wait := retry.wait(err, lived)
		// When another link gets through, this one tries at once: a process that
		// publishes, but does not consume yet, takes work from the store only to
		// leave it in the queue. But not twice without a wait of its own: two that
		// get through and are cut off at once would wake each other for ever.
		if woken {
			answered = nil
		}
		woken = false
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-answered:
			woken = true
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// up tells that a session is in use.
func (l *link) up(s *session) {
	l.answers.set(struct{}{})
	l.trouble.over()
	l.trouble.log.Info("amqp: connected", "broker", s.where)
}

// trouble logs what goes wrong again and again at most once a minute, each kind
// of it: a proxy in front of a broker that is away makes them alternate.
type trouble struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[int]time.Time // by the broker's code, or -1
}

func (t *trouble) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.last)
}

func (t *trouble) warn(msg string, err error, args ...any) {
	kind, level := -1, slog.LevelWarn
	if errors.Is(err, ErrMisconfigured) {
		level = slog.LevelError
	}
	if e, ok := errors.AsType[*amqp091.Error](err); ok {
		kind = e.Code
	}
	t.mu.Lock()
	last, ok := t.last[kind]
	again := ok && time.Since(last) < repeatAfter
	if !again {
		if t.last == nil {
			t.last = map[int]time.Time{}
		}
		t.last[kind] = time.Now()
	}
	t.mu.Unlock()
	if again {
		return
	}
	t.log.Log(context.Background(), level, msg, append(args, "error", err)...)
}

// advice says what a person can do about what the broker refuses.
var advice = map[int]string{
	amqp091.AccessRefused:      "check user, password and permissions; a user who may not declare needs Topology: Verify",
	amqp091.NotFound:           "declare it, or use Topology: Declare",
	amqp091.PreconditionFailed: "it exists with other properties: delete it when it is empty, or choose another Prefix, or use it as it is with Topology: Verify",
	amqp091.NotAllowed:         "create the virtual host, and let the user use it",
}

// refused adds ErrMisconfigured and what can be done to a refusal of the broker.
func refused(err error) error {
	e, ok := errors.AsType[*amqp091.Error](err)
	if !ok || advice[e.Code] == "" {
		return err
	}
	return &refusal{err: err, advice: advice[e.Code]}
}

type refusal struct {
	err    error
	advice string
}

func (r *refusal) Error() string   { return r.err.Error() + " (" + r.advice + ")" }
func (r *refusal) Unwrap() []error { return []error{ErrMisconfigured, r.err} }
