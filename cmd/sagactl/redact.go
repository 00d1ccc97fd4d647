package main

import (
	"net/url"
	"regexp"
	"strings"
)

// passwordRules find passwords in text that is about a connection: in a URL,
// whatever else is wrong with it, and in a DSN of keywords or a query.
var passwordRules = []*regexp.Regexp{
	regexp.MustCompile(`(://[^\s/@:]*:)[^\s"'` + "`" + `]*(@)`),
	regexp.MustCompile(`(?i)(\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&"']+)()`),
}

// redact takes passwords out of a text: those that look like one, and those of
// the addresses that the tool was given.
func redact(text string, addresses ...string) string {
	for _, a := range addresses {
		for _, secret := range secrets(a) {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	for _, r := range passwordRules {
		text = r.ReplaceAllString(text, "${1}***${2}")
	}
	return text
}

// secrets returns the passwords in an address, as written and as meant.
func secrets(address string) []string {
	var all []string
	add := func(raw string) {
		all = append(all, raw)
		if plain, err := url.PathUnescape(raw); err == nil {
			all = append(all, plain)
		}
		if plain, err := url.QueryUnescape(raw); err == nil {
			all = append(all, plain)
		}
	}
	if _, rest, ok := strings.Cut(address, "://"); ok {
		if i := strings.LastIndex(rest, "@"); i >= 0 {
			if _, password, ok := strings.Cut(rest[:i], ":"); ok {
				add(password)
			}
		}
		if _, query, ok := strings.Cut(rest, "?"); ok {
			for pair := range strings.SplitSeq(query, "&") {
				if k, v, _ := strings.Cut(pair, "="); strings.HasSuffix(k, "password") {
					add(v)
				}
			}
		}
	}
	// One or two letters would be found in every sentence; passwordRules find
	// them where they stand as a password.
	kept := all[:0]
	for _, s := range all {
		if len(s) > 2 {
			kept = append(kept, s)
		}
	}
	return kept
}
