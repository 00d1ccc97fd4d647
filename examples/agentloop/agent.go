package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leveret-go/leveret/saga"
)

// A Trip is what the saga leaves: the conversation's result.
type Trip struct {
	Hotel string `json:"hotel,omitempty"`
}

// Said is what the user writes: any number of messages, at any time.
const Said saga.Signal[string] = "said"

// planTrip is the saga: a conversation, and then a booking.
func planTrip(a *agent) saga.Definition[Trip] {
	return saga.Definition[Trip]{Name: "plan-trip", Steps: []saga.Step[Trip]{
		{Name: "talk", Await: &saga.Await[Trip]{Signal: Said, Timeout: 24 * time.Hour}, Execute: a.talk},
		{Name: "book", Execute: a.book},
	}}
}

// A talk is what the agent remembers between attempts: the conversation so far,
// and the key of the message that it has heard last.
type talk struct {
	Heard string   `json:"heard"`
	Lines []string `json:"lines"`
}

// talk is one turn: it hears one message, and calls the model until the model
// wants to hear the user again, or is done.
func (a *agent) talk(ctx context.Context, run *saga.Run[Trip]) error {
	said, came, err := Said.Receive(run)
	switch {
	case err != nil:
		return saga.Fail(err)
	case !came:
		return saga.Fail(errors.New("the user has gone"))
	}
	var t talk
	if _, err := run.LoadCheckpoint(&t); err != nil {
		return saga.Fail(err)
	}
	if key := run.Received()[0].Key; t.Heard != key { // else an attempt before this one died in this turn
		t.Heard, t.Lines = key, append(t.Lines, "user: "+said)
	}
	for {
		answer, err := a.model(t.Lines)
		if err != nil {
			return saga.RetryAfter(100*time.Millisecond, err) // the next attempt goes on from the checkpoint
		}
		t.Lines = append(t.Lines, answer.line())
		if err := run.Checkpoint(ctx, t); err != nil { // it was paid for: keep it
			return err
		}
		switch {
		case answer.Question != "":
			a.say(answer.Question)
			return saga.Snooze(0) // await the next message
		case answer.Hotel != "":
			run.State.Hotel = answer.Hotel
			return nil
		}
	}
}

func (a *agent) book(_ context.Context, run *saga.Run[Trip]) error {
	a.say("Booked: " + run.State.Hotel)
	return nil
}

// An answer is what the model says: one of these.
type answer struct {
	Tool, Question, Hotel string
}

func (a answer) line() string { return fmt.Sprintf("agent: %s%s%s", a.Tool, a.Question, a.Hotel) }

// An agent stands for a model that costs money by the call, and a way to talk to
// the user.
type agent struct {
	calls int
	lines chan string // to the user
}

func (a *agent) say(line string) { a.lines <- line }

// model looks at a conversation and says what comes next. Its fourth call fails.
func (a *agent) model(lines []string) (answer, error) {
	a.calls++
	fmt.Printf("   model, call %d, sees %d lines\n", a.calls, len(lines))
	if a.calls == 4 {
		return answer{}, errors.New("the model is overloaded")
	}
	return []answer{
		1: {Tool: "search hotels in Lisbon"},
		2: {Question: "How much may it cost?"},
		4: {Tool: "search hotels below 400"},
		5: {Question: "Hotel Tejo, for 380?"},
		7: {Hotel: "Hotel Tejo"},
	}[len(lines)], nil
}
