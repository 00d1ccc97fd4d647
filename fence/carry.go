package fence

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/leveret-go/leveret/fence/internal/core"
)

const (
	header        = "Idempotency-Key"
	executeHeader = "Leveret-Execute-Key"
)

// A Call is what knows its keys: a *saga.Run or a *saga.Call.
type Call interface {
	Key(effect ...string) string
	ExecuteKey(effect ...string) string
}

// SetCall puts the keys of a step's call on the request that it makes, with the
// same effects for both:
//
//	fence.SetCall(req.Header, run)           // a step with one request
//	fence.SetCall(req.Header, run, "hotel")  // one of several
//
// Two requests of one step to one participant need two effects: under one, the
// second would be taken for a repetition of the first. This is why there is no
// http.RoundTripper here that does it unasked.
func SetCall(h http.Header, c Call, effect ...string) {
	SetHeader(h, c.Key(effect...), c.ExecuteKey(effect...))
}

// SetHeader sets Idempotency-Key, which many payment APIs know, to key, and
// Leveret-Execute-Key to executeKey.
func SetHeader(h http.Header, key, executeKey string) {
	h.Set(header, key)
	h.Set(executeHeader, executeKey)
}

// FromHeader returns the keys that [SetHeader] has set. Without an execute key
// it is the key: a call of somebody who knows nothing of undoing is an effect.
// It accepts the key as a quoted string, too. ok is false when there is no key,
// or a header that is no key that [Pass] takes.
func FromHeader(h http.Header) (key, executeKey string, ok bool) {
	key, executeKey, err := fromHeader(h)
	return key, executeKey, err == nil && key != ""
}

// fromHeader returns no keys when there are none.
func fromHeader(h http.Header) (key, executeKey string, err error) {
	if key, err = single(h, header); err != nil {
		return "", "", err
	}
	if executeKey, err = single(h, executeHeader); err != nil {
		return "", "", err
	}
	switch {
	case key == "" && executeKey != "":
		return "", "", fmt.Errorf("%w: %s: is missing", ErrInvalid, header)
	case executeKey == "":
		executeKey = key
	}
	return key, executeKey, nil
}

func single(h http.Header, name string) (string, error) {
	values := h.Values(name)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", fmt.Errorf("%w: %s: is given %d times", ErrInvalid, name, len(values))
	}
	key := values[0]
	if len(key) > 1 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(key[1 : len(key)-1])
	}
	return key, core.CheckKey(name, key)
}

const (
	tableKey        = "idempotency-key"
	tableExecuteKey = "leveret-execute-key"
)

// SetTable sets the keys in the headers of an AMQP message, as idempotency-key
// and leveret-execute-key. An amqp091.Table can be given as it is.
func SetTable(t map[string]any, key, executeKey string) {
	t[tableKey] = key
	t[tableExecuteKey] = executeKey
}

// FromTable returns the keys that [SetTable] has set, with the rules of
// [FromHeader].
func FromTable(t map[string]any) (key, executeKey string, ok bool) {
	h := http.Header{}
	for name, header := range map[string]string{tableKey: header, tableExecuteKey: executeHeader} {
		switch v := t[name].(type) {
		case nil:
		case string:
			h.Set(header, v)
		case []byte:
			h.Set(header, string(v))
		default:
			return "", "", false
		}
	}
	return FromHeader(h)
}

type keysKey struct{}

// NewContext returns a ctx that carries keys, for transports that have no
// helper here.
func NewContext(ctx context.Context, key, executeKey string) context.Context {
	return context.WithValue(ctx, keysKey{}, [2]string{key, executeKey})
}

// FromContext returns the keys that [Middleware] or [NewContext] has put there.
func FromContext(ctx context.Context) (key, executeKey string, ok bool) {
	keys, ok := ctx.Value(keysKey{}).([2]string)
	return keys[0], keys[1], ok
}

// Middleware puts the keys of each request into its context, where
// [FromContext] finds them. A request without keys goes through without any; it
// is for the handler to say whether it needs them. One whose keys [Pass] would
// not take is answered with 400.
func Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, executeKey, err := fromHeader(r.Header)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if key != "" {
			r = r.WithContext(NewContext(r.Context(), key, executeKey))
		}
		next.ServeHTTP(w, r)
	})
}
