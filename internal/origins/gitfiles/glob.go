package gitfiles

import (
	"slices"
	"strings"
)

// glob matches names against a pattern of .gitattributes, byte by byte. It keeps the set of all places in the pattern at which
// a match can go on, so that its work is at most the product of both lengths, whatever the pattern is. A pattern that is not
// valid matches nothing.
type glob struct {
	pattern string
	// inPath means that the pattern has slashes: * and ? do not match one, and ** matches folders.
	inPath bool
	steps  int64 // the work so far

	now, next []int // states: see state
	seen      []int // by state: the number of bytes after which it was added last, plus 1
}

// A state is twice the place of an element of the pattern, plus 1 between the first byte and the last slash of a **/.
func state(place int) int { return 2 * place }

// kind is the kind of an element of a pattern.
type kind int

const (
	invalid kind = iota
	literal      // one byte
	one          // any byte
	set          // a byte of a set
	many         // any bytes
	folders      // nothing, or bytes that end with a slash
)

// element is an element of a pattern.
type element struct {
	kind    kind
	byte    byte
	noSlash bool // one and many do not match a slash
	end     int  // the place of the next element
}

// isSpecial reports whether a byte has a meaning in patterns.
func isSpecial(c byte) bool { return c == '*' || c == '?' || c == '[' || c == '\\' }

// match reports whether the pattern matches a text.
func (g *glob) match(text string) bool {
	g.seen = slices.Repeat([]int{0}, 2*len(g.pattern)+2)
	g.steps += int64(len(g.pattern))
	g.now = g.now[:0]
	g.add(&g.now, state(0), 1)
	for i := 0; i < len(text) && len(g.now) > 0; i++ {
		g.next = g.next[:0]
		for _, s := range g.now {
			g.step(s, text[i], i+2)
		}
		g.now, g.next = g.next, g.now
	}
	return slices.Contains(g.now, state(len(g.pattern)))
}

// step adds the states that follow a state after a byte.
func (g *glob) step(s int, c byte, round int) {
	g.steps++
	place := s / 2
	if place == len(g.pattern) {
		return
	}
	e := g.element(place)
	switch e.kind {
	case literal:
		if c == e.byte {
			g.add(&g.next, state(e.end), round)
		}
	case one:
		if c != '/' || !e.noSlash {
			g.add(&g.next, state(e.end), round)
		}
	case set:
		if end, in := g.inSet(place, c); in {
			g.add(&g.next, state(end), round)
		}
	case many:
		if c != '/' || !e.noSlash {
			g.add(&g.next, s, round)
		}
	case folders:
		g.add(&g.next, state(place)+1, round)
		if c == '/' {
			g.add(&g.next, state(e.end), round)
		}
	}
}

// add adds a state, and those that it reaches without a byte.
func (g *glob) add(to *[]int, s, round int) {
	for g.seen[s] != round {
		g.steps++
		g.seen[s] = round
		*to = append(*to, s)
		place := s / 2
		if s != state(place) || place == len(g.pattern) || g.pattern[place] != '*' {
			return
		}
		s = state(g.element(place).end)
	}
}

// element returns the element at a place. The end of a set is known only to inSet.
func (g *glob) element(place int) element {
	switch c := g.pattern[place]; c {
	case '*':
		return g.stars(place)
	case '?':
		return element{kind: one, noSlash: g.inPath, end: place + 1}
	case '[':
		return element{kind: set}
	case '\\':
		if place+1 == len(g.pattern) {
			return element{}
		}
		return element{kind: literal, byte: g.pattern[place+1], end: place + 2}
	default:
		return element{kind: literal, byte: c, end: place + 1}
	}
}

// stars returns the element that begins with a star. Two stars match folders only if they are a whole part of a path.
func (g *glob) stars(place int) element {
	rest := strings.TrimLeft(g.pattern[place:], "*")
	end := len(g.pattern) - len(rest)
	whole := g.inPath && end-place > 1 && (place == 0 || g.pattern[place-1] == '/')
	switch {
	case whole && strings.HasPrefix(rest, "/"):
		return element{kind: folders, end: end + 1}
	case whole && (rest == "" || strings.HasPrefix(rest, `\/`)):
		return element{kind: many, end: end}
	}
	return element{kind: many, noSlash: g.inPath, end: end}
}

// inSet reports whether the set at a place contains a byte, and where the set ends.
func (g *glob) inSet(place int, c byte) (end int, in bool) {
	rest := g.pattern[place+1:]
	negated := strings.HasPrefix(rest, "!") || strings.HasPrefix(rest, "^")
	if negated {
		rest = rest[1:]
	}
	for first := true; first || !strings.HasPrefix(rest, "]"); first = false {
		g.steps++
		if class, after, ok := strings.Cut(strings.TrimPrefix(rest, "[:"), "]"); ok && strings.HasPrefix(rest, "[:") && strings.HasSuffix(class, ":") {
			contains, known := classes[strings.TrimSuffix(class, ":")]
			if !known {
				return 0, false
			}
			in, rest = in || contains(c), after
			continue
		}
		low, after, ok := member(rest)
		if !ok {
			return 0, false
		}
		high := low
		if isRange := len(after) > 1 && after[0] == '-' && after[1] != ']'; isRange {
			if high, after, ok = member(after[1:]); !ok {
				return 0, false
			}
		}
		in, rest = in || low <= c && c <= high, after
	}
	return len(g.pattern) - len(rest) + 1, in != negated && (c != '/' || !g.inPath)
}

// member reads a byte of a set, which a backslash can precede.
func member(s string) (c byte, rest string, ok bool) {
	s = strings.TrimPrefix(s, `\`)
	if s == "" {
		return 0, "", false
	}
	return s[0], s[1:], true
}

// classes are the sets of ASCII bytes that POSIX names.
var classes = map[string]func(byte) bool{
	"alnum": func(c byte) bool { return between(c, '0', '9') || isLetter(c) }, "alpha": isLetter,
	"blank": func(c byte) bool { return c == ' ' || c == '\t' }, "cntrl": func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit": func(c byte) bool { return between(c, '0', '9') }, "graph": func(c byte) bool { return between(c, '!', '~') },
	"lower": func(c byte) bool { return between(c, 'a', 'z') }, "print": func(c byte) bool { return between(c, ' ', '~') },
	"punct": func(c byte) bool { return between(c, '!', '~') && !between(c, '0', '9') && !isLetter(c) },
	"space": func(c byte) bool { return c == ' ' || between(c, '\t', '\r') }, "upper": func(c byte) bool { return between(c, 'A', 'Z') },
	"xdigit": func(c byte) bool { return between(c, '0', '9') || between(c|0x20, 'a', 'f') },
}

func between(c, low, high byte) bool { return low <= c && c <= high }

func isLetter(c byte) bool { return between(c|0x20, 'a', 'z') }
