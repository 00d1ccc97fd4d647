package saga

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// timetable says when a schedule has its occurrences.
type timetable struct {
	cron  cron.Schedule // nil: every
	wild  bool          // the cron's hours are not named: it goes by real time
	zone  *time.Location
	every time.Duration
	since time.Time // of every: what the occurrences are counted from
}

// cronParser reads the five fields of cron(5), and @hourly and the like.
var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseTimetable reads what a schedule says about its times.
func parseTimetable(spec string, every time.Duration, zone string) (*timetable, error) {
	t := &timetable{every: every, since: everySince}
	switch {
	case (spec == "") == (every == 0):
		return nil, errors.New("wants one of Cron and Every")
	case every != 0 && (every < time.Second || every > maxWait):
		return nil, fmt.Errorf("the field Every is %v, want a second to 100 years", every)
	}
	var err error
	if zone == "" {
		zone = "UTC"
	}
	if zone == "Local" {
		return nil, errors.New("the field TimeZone is Local, which is another one on another machine: name it")
	}
	if t.zone, err = time.LoadLocation(zone); err != nil {
		return nil, fmt.Errorf("the field TimeZone: %w (a program without the system's time zones imports time/tzdata)", err)
	}
	if spec == "" {
		return t, nil
	}
	if strings.Contains(spec, "TZ=") || strings.HasPrefix(spec, "@every") {
		return nil, fmt.Errorf("the field Cron, %q: the time zone is named by TimeZone, and a duration by Every", spec)
	}
	if t.cron, err = cronParser.Parse(spec); err != nil {
		return nil, fmt.Errorf("the field Cron, %q: %w", spec, err)
	}
	fields := strings.Fields(spec)
	t.wild = spec == "@hourly" || len(fields) == 5 && strings.HasPrefix(fields[1], "*")
	if t.after(time.Now()).IsZero() {
		return nil, fmt.Errorf("the field Cron, %q: there is no such day", spec)
	}
	return t, nil
}

// everySince is what the occurrences of all durations are counted from, so that
// they are the same for every process: a Monday.
var everySince = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// after returns the first occurrence after a time, zero when there is none.
//
// A cron that names its hours goes by the clock on the wall. A time that the wall
// clock leaves out is taken as the moment when it jumps; one that it has twice is
// the first one. A cron with "*" hours goes by real time, and so do durations.
func (t *timetable) after(at time.Time) time.Time {
	switch {
	case t.cron == nil:
		n := at.Sub(t.since) / t.every
		next := t.since.Add(n * t.every)
		for !next.After(at) {
			next = next.Add(t.every)
		}
		return next.UTC()
	case t.wild:
		return utc(t.cron.Next(at.In(t.zone)))
	}
	// What the wall shows, as a time of UTC, which has no jumps. Some hours
	// before, because the wall may show this hour twice.
	wall := onWall(at.In(t.zone)).Add(-4 * time.Hour)
	for {
		wall = t.cron.Next(wall)
		if wall.IsZero() {
			return wall
		}
		if next := t.real(wall); next.After(at) {
			return next.UTC()
		}
	}
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// onWall returns what a clock in t's zone shows, as a time of UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// real returns when the clock on the wall first shows this time, or the moment
// when it jumps over it.
func (t *timetable) real(wall time.Time) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, t.zone)
	if shown := onWall(at); !shown.Equal(wall) { // left out: at is some way off, on either side of the jump
		lo, hi := at.Add(-26*time.Hour), at.Add(26*time.Hour)
		for hi.Sub(lo) > time.Second { // the wall shows an earlier time at lo, and a later one at hi
			mid := lo.Add(hi.Sub(lo) / 2).Truncate(time.Second)
			if onWall(mid.In(t.zone)).Before(wall) {
				lo = mid
			} else {
				hi = mid
			}
		}
		return hi
	}
	// It may have been shown before: zones turn back by up to some hours.
	for _, back := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour} {
		if before := at.Add(-back); onWall(before.In(t.zone)).Equal(wall) {
			return before
		}
	}
	return at
}

// last returns the last occurrence after from and not after now, zero when
// there is none.
func (t *timetable) last(from, now time.Time) (last time.Time) {
	// Backwards in ever longer steps, as there may be very many.
	for back := time.Minute; ; back *= 16 {
		begin := now.Add(-back)
		if begin.Before(from) {
			begin = from
		}
		for at := t.after(begin); !at.IsZero() && !at.After(now); at = t.after(at) {
			last = at
		}
		if !last.IsZero() || !begin.After(from) {
			return last
		}
	}
}
