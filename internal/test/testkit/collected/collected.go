// Package collected collects the output of programs and of logs.
package collected

import (
	"strings"
	"sync"
)

// Text collects text. It is safe for concurrent use. The zero value is no text.
type Text struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String returns the text so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Count returns how often the text so far contains s.
func (t *Text) Count(s string) int { return strings.Count(t.String(), s) }
