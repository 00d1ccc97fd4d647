package saga

import (
	"encoding/json"
	"net/http"
	"time"
)

// LiveHandler answers 200 while this process is worth keeping: it does not run
// yet, or its loops move. It answers 503 when [Engine.Run] runs and the loop that
// watches over leases has stood still for three leases, at least 30 seconds: then
// a restart may help. It asks neither store nor broker: an outage of these is no
// reason to restart anything. GET and HEAD only.
func LiveHandler(e *Engine) http.Handler {
	return probe(func() (bool, any) {
		alive := e.moves()
		return alive, map[string]bool{"alive": alive}
	})
}

// ReadyHandler answers 200 while this process works: [Engine.Run] runs, does not
// drain, and the store has answered lately. Else 503, with the reason. It does no
// I/O itself. GET and HEAD only.
func ReadyHandler(e *Engine) http.Handler {
	return probe(func() (bool, any) {
		reason := ""
		switch {
		case e.life.isDraining():
			reason = "draining"
		case !e.life.isRunning():
			reason = "not running"
		case !e.answered():
			reason = "the store does not answer"
		}
		return reason == "", struct {
			Ready  bool   `json:"ready"`
			Reason string `json:"reason,omitempty"`
		}{reason == "", reason}
	})
}

// HealthHandler answers with [Engine.Health] as JSON, with 200, or 503 while
// its level is down. It tells who paused what and why: keep it behind your
// authentication. GET and HEAD only.
func HealthHandler(e *Engine) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !readOnly(w, r) {
			return
		}
		h := e.Health(r.Context())
		reply(w, r, h.Level != HealthDown, h)
	})
}

func probe(f func() (ok bool, body any)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if readOnly(w, r) {
			ok, body := f()
			reply(w, r, ok, body)
		}
	})
}

func readOnly(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

func reply(w http.ResponseWriter, r *http.Request, ok bool, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(b, '\n'))
	}
}

// moves reports whether the loop that renews leases has gone round lately.
func (e *Engine) moves() bool {
	last := e.beat.Load()
	return !e.life.isRunning() || last == 0 || time.Since(time.Unix(0, last)) < max(3*e.cfg.Lease, 30*time.Second)
}

// answered reports whether the store has answered one of the loops lately.
func (e *Engine) answered() bool {
	within := max(10*e.cfg.SweepEvery, e.cfg.Lease)
	if heard := e.heard.Load(); heard != 0 && time.Since(time.Unix(0, heard)) < within {
		return true
	}
	looked := e.stats.lookedAt()
	return !looked.IsZero() && e.clock.now().Sub(looked) < within
}
