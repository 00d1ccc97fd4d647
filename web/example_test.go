package web_test

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/web"
)

var (
	engine, _ = saga.New(saga.Config{Store: memory.New()})
	sessions  sessionStore
)

type user struct {
	Name, Tenant string
	OnCall       bool
}

type sessionStore struct{}

func (sessionStore) User(*http.Request) (user, bool) {
	return user{Name: "ann", Tenant: "acme", OnCall: true}, true
}

// One name and password for all, compared in constant time.
func ExampleHandler_basicAuth() {
	equal := func(a, b string) bool {
		x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
		return subtle.ConstantTimeCompare(x[:], y[:]) == 1
	}
	console := web.Handler(engine, web.Config{
		Authorize: func(r *http.Request, _ web.Action) (string, error) {
			name, _, ok := r.BasicAuth()
			if !ok {
				return "", errors.New("who are you?")
			}
			return name, nil
		},
	})
	http.Handle("/sagas/", http.StripPrefix("/sagas", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		named, right := equal(name, "ops"), equal(password, os.Getenv("CONSOLE_PASSWORD"))
		if !named || !right || os.Getenv("CONSOLE_PASSWORD") == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="sagas", charset="UTF-8"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		console.ServeHTTP(w, r)
	})))
}

// Users that your service knows: who is on call may act, the others may look,
// and each sees the tenant that is theirs.
func ExampleHandler_session() {
	http.Handle("/sagas/", http.StripPrefix("/sagas", web.Handler(engine, web.Config{
		Authorize: func(r *http.Request, a web.Action) (string, error) {
			u, ok := sessions.User(r)
			switch {
			case !ok:
				return "", errors.New("sign in first")
			case a != web.ActionRead && !u.OnCall:
				return "", fmt.Errorf("%s is for who is on call", a)
			}
			return u.Name, nil
		},
		Scope: func(r *http.Request) (store.Filter, error) {
			u, _ := sessions.User(r)
			return store.Filter{Tags: map[string]string{"tenant": u.Tenant}}, nil
		},
	})))
}

// An authenticating proxy in front says who it is. Nobody else may reach this
// port: the header would be anybody's to write.
func ExampleHandler_proxy() {
	http.Handle("/", web.Handler(engine, web.Config{
		Origins: []string{"https://ops.example.org"},
		Authorize: func(r *http.Request, _ web.Action) (string, error) {
			if name := r.Header.Get("X-Authenticated-User"); name != "" {
				return name, nil
			}
			return "", errors.New("the proxy did not say who this is")
		},
	}))
}
