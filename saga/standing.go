package saga

import (
	"time"

	"github.com/leveret-go/leveret/store"
)

// standing is why an execution does not move, seen by a process that looks at
// it: what ResumeStuck acts on, and what a diagnosis begins with. d is what is
// queued for its partition, and attended since when that is known to have a
// consumer.
func (e *Engine) standing(m *machine, d depth, attended time.Time) DiagnosisCode {
	if code := m.restsFor(); code != "" {
		return code
	}
	return e.pointed(m, d, attended)
}

// restsFor is why nothing is to be done for an execution now; "": something is.
func (m *machine) restsFor() DiagnosisCode {
	x := m.x
	switch {
	case x.Status.Finished():
		return DiagnosisFinished
	case x.Status == store.StatusHalted:
		return DiagnosisHalted
	case m.live():
		return DiagnosisRunning
	case x.WakeAt != nil && x.WakeAt.After(m.now.Add(earlyTolerance)):
		return m.waitsFor()
	case x.Status == store.StatusWaiting && (x.DueAt == nil || x.Gate != nil && !x.Gate.Open && x.Gate.Until == nil):
		return DiagnosisWaiting
	}
	return ""
}

// pointed is what has become of the pointer to an execution that is due.
func (e *Engine) pointed(m *machine, d depth, attended time.Time) DiagnosisCode {
	x := m.x
	switch {
	case m.paused():
		return DiagnosisPaused
	case m.rules.direct:
		return DiagnosisDue
	case !d.known || d.consumers == 0:
		return DiagnosisNoConsumer
	case d.ready > e.cfg.BacklogThreshold:
		return DiagnosisBacklog
	case d.ready > 0:
		return DiagnosisQueued
	case x.OfferedAt == nil || x.OfferedAt.Before(attended) || e.refused.since(x.Partition, *x.OfferedAt):
		return DiagnosisDue // it was offered to nobody
	}
	return DiagnosisLost
}

// waitsFor says what an execution with a WakeAt waits for.
func (m *machine) waitsFor() DiagnosisCode {
	x := m.x
	entry := m.entry()
	switch {
	case x.Status == store.StatusWaiting:
		return DiagnosisWaiting
	case x.Direction == store.DirectionCompensate && entry != nil && entry.DoubtUntil != nil && entry.DoubtUntil.Equal(*x.WakeAt):
		return DiagnosisDoubt
	case x.Failure != nil && x.Failure.Step == x.Step && x.Tries > 0:
		return DiagnosisRetry
	}
	return DiagnosisWaiting
}
