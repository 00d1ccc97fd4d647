package web

import (
	"context"
	"errors"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A refusal is an answer that is not what was asked for.
type refusal struct {
	status int
	code   string // for programs
	text   string // for people
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, code, text string) error { return &refusal{status, code, text} }

var (
	errNotHere   = refuse(http.StatusNotFound, "not_found", "there is no such thing here")
	errNoQueries = refuse(http.StatusNotImplemented, "not_supported", "the store cannot be queried: it is no store.Querier")
)

type requestKey struct{}

// A visit is what is known of the request's sender.
type visit struct {
	scope  store.Filter
	scoped bool
}

func visitOf(r *http.Request) *visit { return r.Context().Value(requestKey{}).(*visit) }

func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer") // fetch sends Origin all the same
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")

	if _, err := c.authorize(r, ActionRead); err != nil {
		c.fail(w, r, err)
		return
	}
	v := &visit{}
	if c.cfg.Scope != nil {
		f, err := c.cfg.Scope(r)
		if err == nil {
			err = checkScope(&f)
		}
		if err != nil {
			c.fail(w, r, refuse(http.StatusForbidden, "forbidden", "the scope of the request: "+err.Error()))
			return
		}
		v.scope, v.scoped = f, true
	}
	p, ok := c.below(r)
	if !ok {
		c.fail(w, r, errNotHere)
		return
	}
	if p == "" { // relative addresses need the slash
		to := path.Base(pathOf(r)) + "/"
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		h.Set("Location", "./"+to) // http.Redirect would make it absolute, without what a router has stripped
		w.WriteHeader(http.StatusFound)
		return
	}
	inner := r.Clone(context.WithValue(r.Context(), requestKey{}, v))
	inner.URL.Path, inner.URL.RawPath = p, ""
	c.mux.ServeHTTP(w, inner)
}

// pathOf returns the path as the client wrote it.
func pathOf(r *http.Request) string {
	p, _, _ := strings.Cut(r.RequestURI, "?")
	if p == "" {
		p = r.URL.Path
	}
	return p
}

// below returns the path below the mount point; "" when that itself was asked
// for without a slash at its end.
func (c *console) below(r *http.Request) (string, bool) {
	p := r.URL.Path
	if base := strings.TrimRight(c.cfg.BasePath, "/"); base != "" {
		rest, ok := strings.CutPrefix(p, base)
		if !ok || rest != "" && rest[0] != '/' {
			rest = p // a router stripped it
		}
		p = rest
	}
	if p == "" || p == "/" && !strings.HasSuffix(pathOf(r), "/") {
		return "", true
	}
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return p, path.Clean(p) == strings.TrimRight(p, "/") || p == "/"
}

// authorize returns who may do a.
func (c *console) authorize(r *http.Request, a Action) (string, error) {
	writes := a != ActionRead && a != ActionReadState
	if writes && c.cfg.ReadOnly {
		return "", refuse(http.StatusForbidden, "read_only", "this console is read-only")
	}
	if c.cfg.Authorize == nil {
		switch {
		case !loopback(r):
			return "", refuse(http.StatusForbidden, "forbidden", "without Config.Authorize the console answers on the loopback interface only")
		case writes:
			return "", refuse(http.StatusForbidden, "read_only", "without Config.Authorize the console is read-only")
		}
		return "", nil
	}
	actor, err := c.cfg.Authorize(r, a)
	switch {
	case err != nil:
		return "", refuse(http.StatusForbidden, "forbidden", err.Error())
	case writes && strings.TrimSpace(actor) == "":
		return "", refuse(http.StatusForbidden, "forbidden", "Config.Authorize did not say who this is")
	}
	return actor, nil
}

var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// loopback reports whether a request came from this machine, to this machine's
// own name, and through no proxy.
func loopback(r *http.Request) bool {
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !isLoopback(peer) || !isLoopback(hostOf(r.Host)) {
		return false
	}
	return !slices.ContainsFunc(forwarded, func(name string) bool { return len(r.Header.Values(name)) > 0 })
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// LoopbackOnly is a [Config.Authorize] that lets everybody on this machine do
// everything, under the name actor: for demonstrations and development.
func LoopbackOnly(actor string) func(*http.Request, Action) (string, error) {
	return func(r *http.Request, _ Action) (string, error) {
		if !loopback(r) {
			return "", errors.New("this console answers on the loopback interface only")
		}
		return actor, nil
	}
}

// writable refuses what a page of somebody else could make a browser send.
func (c *console) writable(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil || kind != "application/json":
		return refuse(http.StatusUnsupportedMediaType, "not_json", "what changes something is sent as application/json")
	case r.Header.Get("X-Leveret") != "1":
		return refuse(http.StatusForbidden, "no_header", "what changes something carries the header X-Leveret: 1")
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		origin = r.Header.Get("Referer")
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return refuse(http.StatusForbidden, "cross_origin", "what changes something says where it comes from: Origin or Referer")
	}
	if strings.EqualFold(u.Host, r.Host) || slices.ContainsFunc(c.cfg.Origins, func(o string) bool {
		return strings.EqualFold(strings.TrimRight(o, "/"), u.Scheme+"://"+u.Host)
	}) {
		return nil
	}
	return refuse(http.StatusForbidden, "cross_origin", "it comes from a page of another origin")
}

// checkScope refuses what cannot be intersected with what a user asks for.
func checkScope(f *store.Filter) error {
	rest := *f
	rest.Sagas, rest.Partitions, rest.Resource, rest.Tags, rest.Created = nil, nil, store.Resource{}, nil, store.Range{}
	if !rest.IsZero() {
		return errors.New("a scope is made of Sagas, Partitions, Resource, Tags and Created")
	}
	return f.Validate()
}

// narrow returns what f selects within a scope, and false when that is nothing.
func narrow(f, scope store.Filter) (store.Filter, bool) {
	ok := true
	some := func(list, within []string) []string {
		switch {
		case len(within) == 0:
			return list
		case len(list) == 0:
			return within
		}
		both := slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !slices.Contains(within, s) })
		ok = ok && len(both) > 0
		return both
	}
	one := func(v, within string) string {
		ok = ok && (v == "" || within == "" || v == within)
		if v == "" {
			return within
		}
		return v
	}
	f.Sagas, f.Partitions = some(f.Sagas, scope.Sagas), some(f.Partitions, scope.Partitions)
	f.Resource = store.Resource{Type: one(f.Resource.Type, scope.Resource.Type), ID: one(f.Resource.ID, scope.Resource.ID)}
	tags := make(map[string]string)
	for k, v := range scope.Tags {
		tags[k] = v
	}
	for k, v := range f.Tags {
		if w, has := scope.Tags[k]; has && v != w {
			ok = false
		}
		tags[k] = v
	}
	if len(tags) > 0 {
		f.Tags = tags
	}
	if from := scope.Created.From; from.After(f.Created.From) {
		f.Created.From = from
	}
	if to := scope.Created.To; !to.IsZero() && (f.Created.To.IsZero() || to.Before(f.Created.To)) {
		f.Created.To = to
	}
	return f, ok
}

// statusOf says what an error of the engine is over HTTP.
func statusOf(err error) *refusal {
	var r *refusal
	var taken *store.KeyTakenError
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, store.ErrNotFound):
		return &refusal{http.StatusNotFound, "not_found", "there is no such execution"}
	case errors.Is(err, saga.ErrNotSupported):
		return &refusal{http.StatusNotImplemented, "not_supported", err.Error()}
	case errors.Is(err, saga.ErrChanged):
		return &refusal{http.StatusConflict, "changed", err.Error()}
	case errors.As(err, &taken):
		return &refusal{http.StatusConflict, "key_taken", err.Error()}
	case errors.Is(err, saga.ErrInvalid), errors.Is(err, store.ErrInvalid):
		return &refusal{http.StatusBadRequest, "invalid", err.Error()}
	}
	for _, known := range []struct {
		err  error
		code string
	}{
		{saga.ErrFinished, "finished"}, {saga.ErrNotRetryable, "not_retryable"}, {saga.ErrNotFinished, "not_finished"}, {saga.ErrNoStep, "no_step"},
		{saga.ErrNotInDoubt, "not_in_doubt"}, {saga.ErrNotEditable, "not_editable"}, {saga.ErrErased, "erased"}, {saga.ErrUnknownSaga, "unknown_saga"},
		{saga.ErrRequestUsed, "request_used"}, {saga.ErrPastPivot, "past_pivot"}, {saga.ErrNotWaiting, "not_waiting"}, {saga.ErrInboxFull, "inbox_full"},
		{saga.ErrNotHalted, "not_halted"}, {saga.ErrAttemptRunning, "attempt_running"},
	} {
		if errors.Is(err, known.err) {
			return &refusal{http.StatusConflict, known.code, err.Error()}
		}
	}
	return nil
}
