package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/leveret-go/leveret/store"
)

// A problem is the JSON of an answer that is not what was asked for.
type problem struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	enc := json.NewEncoder(w) // which escapes <, > and &
	_ = enc.Encode(v)
}

// fail answers with an error. What it cannot name it logs, and does not tell.
func (c *console) fail(w http.ResponseWriter, r *http.Request, err error) {
	known := statusOf(err)
	switch {
	case known != nil:
	case r.Context().Err() != nil:
		return // nobody listens
	case errors.Is(err, context.DeadlineExceeded):
		known = &refusal{http.StatusGatewayTimeout, "timeout", "the store did not answer in time"}
	default:
		c.cfg.Logger.ErrorContext(r.Context(), "console request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		known = &refusal{http.StatusInternalServerError, "internal", "the console could not answer: its log says why"}
	}
	var p problem
	p.Error.Code, p.Error.Message = known.code, known.text
	answer(w, known.status, p)
}

// read makes a handler of a function that only looks.
func (c *console) read(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		answer(w, http.StatusOK, v)
	}
}

// write makes a handler of a function that changes something. What it is allowed
// to do f asks itself: it depends on the body.
func write[B any](c *console, f func(r *http.Request, body B) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := c.writable(r); err != nil {
			c.fail(w, r, err)
			return
		}
		var body B
		if err := decode(http.MaxBytesReader(w, r.Body, maxBody), &body); err != nil {
			c.fail(w, r, err)
			return
		}
		v, err := f(r, body)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		answer(w, http.StatusOK, v)
	}
}

func decode(body io.Reader, v any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, err = dec.Token(); err == io.EOF {
			return nil
		}
		return refuse(http.StatusBadRequest, "invalid", "the body has more than one JSON value")
	}
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "the body is too long")
	}
	text := err.Error()
	if !strings.HasPrefix(text, "json: unknown field") { // others may quote values
		text = "it is not the JSON that is expected here"
	}
	return refuse(http.StatusBadRequest, "invalid", "the body: "+text)
}

// queried answers 501 where the store cannot be queried.
func (c *console) queried(f func(r *http.Request) (any, error)) func(r *http.Request) (any, error) {
	if _, ok := store.As[store.Querier](c.Store()); ok {
		return f
	}
	return func(*http.Request) (any, error) { return nil, errNoQueries }
}
