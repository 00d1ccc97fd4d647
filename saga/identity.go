package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// OnConflict says what becomes of a start whose key is held by another
// execution. "" means what the definition says, and OnConflictReject where that
// says nothing either.
type OnConflict string

// What becomes of a start whose key is held.
const (
	// OnConflictReject: Start returns an error that wraps *store.KeyTakenError.
	OnConflictReject OnConflict = "reject"
	// OnConflictExisting: Start returns the execution that holds the key, or
	// that is going to take it over, and starts nothing.
	OnConflictExisting OnConflict = "existing"
	// OnConflictReplace: the execution that holds the key is cancelled, and
	// compensated if it has done something; the new one is started now, and
	// waits until that has ended. Of several that wait for one key the newest
	// goes on, the others are cancelled. If the old one ends compensation_failed
	// the new one waits until a person has seen to it.
	OnConflictReplace OnConflict = "replace"
)

func (c OnConflict) valid() bool {
	switch c {
	case "", OnConflictReject, OnConflictExisting, OnConflictReplace:
		return true
	}
	return false
}

// identity is what a definition says of the identity of its executions.
type identity[S any] struct {
	key        func(Resource, S) string
	onConflict OnConflict
	deadline   time.Duration
}

// keyOf asks a definition's Key.
func (i *identity[S]) keyOf(r Resource, s S) (key string, err error) {
	if i.key == nil {
		return "", nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: Key panicked: %v", ErrInvalid, v)
		}
	}()
	key = i.key(r, s)
	return key, checkKey(key)
}

// A starter fills in starts whose state is JSON.
type starter struct {
	keyed bool // the definition works out a key
	// fill adds what the definition says of a start with this state, and the
	// state as the saga's type has it.
	fill func(o *order, state json.RawMessage) error
}

func starterOf[S any](codec *stateCodec[S], d Definition[S]) starter {
	i := &identity[S]{key: d.Key, onConflict: d.OnConflict, deadline: d.Deadline}
	return starter{keyed: d.Key != nil, fill: func(o *order, state json.RawMessage) error {
		s, err := codec.decode(state)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if o.state, err = codec.encode(s, state); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return i.fill(o, s)
	}}
}

// fill adds what the definition says.
func (i *identity[S]) fill(o *order, state S) (err error) {
	setDefault(&o.OnConflict, i.onConflict)
	setDefault(&o.OnConflict, OnConflictReject)
	o.within = i.deadline
	if o.Key == "" {
		o.Key, err = i.keyOf(o.resource, state)
	} else {
		err = checkKey(o.Key)
	}
	return err
}

// checkKey reports what is wrong with a start key that was given.
func checkKey(key string) error {
	switch {
	case strings.TrimSpace(key) == "":
		return fmt.Errorf("%w: the start key is empty or blank", ErrInvalid)
	case len(key) > maxKey || !cleanText(key):
		return fmt.Errorf("%w: the start key must be valid UTF-8 without NUL of at most %d bytes", ErrInvalid, maxKey)
	}
	return nil
}

// idSpace is the name space of IDFor.
var idSpace = uuid.MustParse("6c2b5f0e-6f0d-5f7e-9a53-6f1f0f2f5f11")

// IDFor returns the id, always the same, of what may start once for ever: give
// it as StartOptions.ID. A second start with it returns store.ErrExists, also
// long after the first has ended, until that is purged. For what may start again
// when it has ended, use a key.
func IDFor[S any](n Name[S], key string) uuid.UUID {
	return uuid.NewSHA1(idSpace, []byte(string(n)+"/"+key))
}

// Live returns the execution that holds a start key of a saga: an unfinished
// one, or one that is compensation_failed. store.ErrNotFound when none does.
func (e *Engine) Live(ctx context.Context, saga, key string) (*Execution, error) {
	x, err := e.store.Live(ctx, saga, key)
	if err != nil {
		return nil, fmt.Errorf("saga: live %q: %w", saga, err)
	}
	return x, nil
}

// errKeyFree says that the execution which held a key does not any more.
var errKeyFree = errors.New("saga: the key is free")

// holder returns the execution that a start with a held key comes to, or nil if
// the key is free by now.
func (d desk) holder(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	x, err := d.store.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !x.HoldsKey() {
		return nil, nil
	}
	if err != nil || x.ReplacedBy == nil {
		return x, err
	}
	y, err := d.store.Get(ctx, *x.ReplacedBy)
	if errors.Is(err, store.ErrNotFound) || err == nil && y.Status.Finished() {
		return x, nil
	}
	return y, err
}

// replace starts y in the place of the execution that holds its key. errKeyFree
// when none does any more.
func (d desk) replace(ctx context.Context, holder uuid.UUID, y *store.Execution, m *machine) error {
	_, err := d.decideIn(ctx, holder, func(old *machine) error {
		if !old.x.HoldsKey() {
			return errKeyFree
		}
		old.replace(y, m)
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return errKeyFree
	}
	return err
}

// replace cancels the execution for y, which takes over its key when it has
// ended.
func (m *machine) replace(y *store.Execution, ym *machine) {
	x := m.x
	before := x.Status
	if x.ReplacedBy != nil {
		m.wake(*x.ReplacedBy, false) // it has been replaced itself
		x.ReplacedBy = nil
	}
	by := engineBy("execution " + y.ID.String() + " was started in its place")
	if x.Status != store.StatusCompensationFailed && x.Direction == store.DirectionExecute {
		_ = m.turn(store.TurnCancel, by, false) // else it just goes on, and is followed
	}
	x.ReplacedBy = &y.ID
	if x.HoldsKey() {
		y.Follows = &x.ID
		ym.awaitStart(store.GatePredecessor, nil)
	}
	m.change.Create = append(m.change.Create, y)
	m.created = append(m.created, ym)
	m.audit(ActReplace, by, before).Detail = detailOf(map[string]any{"replaced_by": y.ID}).json
	m.emit(EventActDone).Reason = string(ActReplace)
}

// ActReplace is an act of the audit trail: another execution was started in the
// place of this one.
const ActReplace Act = "replace"

// awaitStart lets a new execution wait before its first step.
func (m *machine) awaitStart(kind store.GateKind, until *time.Time) {
	m.x.Gate = &store.Gate{Kind: kind, Since: m.now, Until: until}
	m.park()
}

// handKeyOver lets the execution that follows this one have its key.
func (m *machine) handKeyOver() {
	x := m.x
	if x.ReplacedBy == nil || x.Key == "" || x.Follows != nil || x.Status.HoldsKey() {
		return
	}
	m.wake(*x.ReplacedBy, true)
}

// A predecessor is what an execution that waits for another one has to know of
// it.
type predecessor struct {
	holds      bool       // it still holds the key
	replacedBy *uuid.UUID // who follows it; nil: it is gone, or nobody does
	taken      bool       // the key was free, but somebody else has it now
}

// waitForPredecessor is what a look at an execution that follows another one
// comes to.
func (m *machine) waitForPredecessor() string {
	x := m.x
	switch p := m.answers.before(x); {
	case x.Follows == nil: // it was handed the key
	case p == nil:
		m.wants = wantPredecessor
		return dropAsk
	case p.taken, p.replacedBy != nil && *p.replacedBy != x.ID:
		m.because(reasonReplaced, "")
		m.finish(store.StatusCancelled)
		return DropEnded
	case p.holds:
		return m.rest()
	default:
		x.Follows = nil
	}
	m.startNow()
	return ""
}
