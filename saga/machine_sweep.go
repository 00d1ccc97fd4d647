package saga

import (
	"fmt"
	"time"

	"github.com/leveret-go/leveret/store"
)

// stillDue reports whether nobody has written the execution since a claim gave it
// this due time. It is due then for what it waits for, too: its deadline, or a
// look at the executions that it waits for.
func (m *machine) stillDue(claimed time.Time) bool {
	x := m.x
	if m.ended() || m.live() || x.DueAt == nil || !x.DueAt.Equal(claimed) {
		return false
	}
	wakes := x.WakeAt != nil && x.WakeAt.Equal(claimed) && claimed.After(m.now.Add(earlyTolerance))
	return !wakes // else it waits until the very microsecond of the claim
}

// lost takes note that the pointer to the execution's position was lost: it was
// offered before, is in no queue, and nobody opened an attempt. claimed is the
// due time that the finder's claim wrote; if it is not that any more, somebody
// else has been here and nothing is done. With more than maxResumes losses in a
// row the execution is given up. It reports whether it did anything.
func (m *machine) lost(claimed *time.Time, maxResumes int, by By) bool {
	x := m.x
	if m.paused() {
		m.notePaused()
		return false
	}
	if claimed != nil && !m.stillDue(*claimed) || claimed == nil && m.restsFor() != "" {
		return false
	}
	before := x.Status
	if x.Resumes+1 > maxResumes && m.known() {
		m.giveUp(by, before)
		return true
	}
	x.Resumes++
	m.republish()
	m.emit(EventResumed).Reason = fmt.Sprintf("pointer lost, resume %d", x.Resumes)
	return true
}

// republish plans another pointer to a position that was offered before.
func (m *machine) republish() {
	offered := m.x.OfferedAt
	m.offer()
	if offered != nil && m.publish {
		m.x.OfferedAt = offered
	}
}

func (m *machine) giveUp(by By, before store.Status) {
	x := m.x
	if x.Attempt != nil {
		m.abandon("lease ran out")
	}
	n := x.Resumes
	x.Resumes = 0
	if x.Status == store.StatusWaiting {
		x.Status, x.WakeAt = store.StatusRunning, nil
	}
	switch {
	case x.Request != nil:
		m.applyRequest()
	case m.rules.onStalled == StalledHalt:
		m.halt(reasonStalled)
	default:
		if x.Direction == store.DirectionExecute {
			m.because(reasonStalled, "")
		}
		m.failForGood(m.stepFailure(classStalled, "its pointers were lost %d times in a row", n+1))
	}
	m.audit(ActGiveUp, by, before)
	if !m.ended() && x.WakeAt == nil {
		m.offer()
	}
}

// again looks at the execution after some time once more: its pointer is
// probably still on its way. With publish another one is sent.
func (m *machine) again(claimed time.Time, after time.Duration, publish bool) {
	if !m.stillDue(claimed) {
		return
	}
	if m.paused() {
		m.notePaused()
		return
	}
	at := m.beforeDeadline(m.now.Add(after))
	m.x.DueAt = &at
	m.publish = publish
	m.touch()
}

// anew publishes a pointer as if it were the first: what was offered before was
// offered to nobody.
func (m *machine) anew(claimed time.Time) {
	if !m.stillDue(claimed) {
		return
	}
	if m.paused() {
		m.notePaused()
		return
	}
	m.offer()
}

// abandonDead closes the attempt of a worker that cannot live any more.
func (m *machine) abandonDead() bool {
	if m.x.Attempt == nil {
		return false
	}
	before := m.x.Status
	m.abandon("its process is gone")
	if m.x.Request != nil {
		m.applyRequest()
	}
	m.actDone()
	m.audit(ActAbandon, engineBy("the store was opened exclusively: its worker is gone"), before)
	return true
}
