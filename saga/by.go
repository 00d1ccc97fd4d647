package saga

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// By says who acts on an execution, and why. Actor and Reason are required: 1
// to 200 and 1 to 2,000 characters. They are kept in the audit trail.
type By struct {
	Actor  string
	Reason string
	// Request, if not "", names this one act, at most 200 characters: a random
	// id, made before the first try. An act of the same content with the same
	// Request on the same execution is done only once, however often it is
	// asked for: the first outcome stands. With other content it is refused
	// with [ErrRequestUsed].
	Request string
}

func (b By) check() error {
	text := func(field, s string, most int, required bool) error {
		switch n := utf8.RuneCountInString(s); {
		case required && strings.TrimSpace(s) == "":
			return fmt.Errorf("%w: By.%s is empty", ErrInvalid, field)
		case !cleanText(s):
			return fmt.Errorf("%w: By.%s is not valid UTF-8 without NUL", ErrInvalid, field)
		case n > most:
			return fmt.Errorf("%w: By.%s is longer than %d characters", ErrInvalid, field, most)
		}
		return nil
	}
	return errors.Join(
		text("Actor", b.Actor, 200, true), text("Reason", b.Reason, 2000, true), text("Request", b.Request, 200, false))
}

// digest is the same for what b asks for with the same content.
func (b By) digest(act Act, content ...string) string {
	h := sha256.New()
	for _, s := range append([]string{string(act), b.Actor, b.Reason}, content...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}
