package core

import (
	"fmt"
	"strings"
)

// MaxKey is how long a key may be, in bytes. PostgreSQL indexes no text that is
// much longer than twice this.
const MaxKey = 1024

// CheckKey says what is wrong with a key. field names it.
func CheckKey(field, key string) error {
	if key == "" {
		return fmt.Errorf("%w: %s: is empty", ErrInvalid, field)
	}
	if len(key) > MaxKey {
		return fmt.Errorf("%w: %s: has %d bytes, at most %d are allowed", ErrInvalid, field, len(key), MaxKey)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return fmt.Errorf("%w: %s: must be printable ASCII", ErrInvalid, field)
		}
	}
	return nil
}

const (
	execute    = "/execute"
	compensate = "/compensate"
)

// undoOf returns what tells one undo of an effect from another, which is its
// key without the round, or "" when the call is that of the effect. What it
// refuses is a call that would be taken for something else: an undo for an
// effect, or an effect for an undo.
func undoOf(key, executeKey string) (string, error) {
	if err := CheckKey("key", key); err != nil {
		return "", err
	}
	if err := CheckKey("executeKey", executeKey); err != nil {
		return "", err
	}
	head, effects, named := strings.Cut(key, ":") // no other colon is in a key of Leveret
	head, undo := withoutRound(head)
	of, _, _ := strings.Cut(executeKey, ":")
	_, executeIsUndo := withoutRound(of)
	switch {
	case executeIsUndo:
		return "", fmt.Errorf("%w: executeKey: is the key of a compensation", ErrInvalid)
	case key == executeKey:
		return "", nil
	case !undo && strings.HasSuffix(head, execute):
		return "", fmt.Errorf("%w: executeKey: differs from key, which is that of an Execute: name the same effects in both", ErrInvalid)
	}
	if named {
		head += ":" + effects
	}
	return head, nil
}

// withoutRound takes the round off the part of a key before its effects, and
// reports whether that part is of a compensation.
func withoutRound(head string) (string, bool) {
	if strings.HasSuffix(head, compensate) {
		return head, true
	}
	i := strings.LastIndexByte(head, '/')
	if i < 0 || i+1 == len(head) || strings.Trim(head[i+1:], "0123456789") != "" {
		return head, false
	}
	if strings.HasSuffix(head[:i], compensate) {
		return head[:i], true
	}
	return head, false
}
