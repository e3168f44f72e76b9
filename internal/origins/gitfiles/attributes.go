package gitfiles

import (
	"path"
	"slices"
	"strings"
)

// value is the value of an attribute.
type value string

// The values of attributes without a text.
const (
	unspecified value = ""
	isTrue      value = "\x00true"
	isFalse     value = "\x00false"
	isUnset     value = "\x00unset" // as if no earlier line named the attribute
)

// maxLine is the length in bytes of the lines that Git ignores, because they are too long.
const maxLine = 2048

// names are the attributes that change the content of a file.
var names = []string{"text", "crlf", "eol", "ident", "filter", "working-tree-encoding"}

// setting is an attribute and its value.
type setting struct {
	name  string
	value value
}

// rule is a line of a .gitattributes file.
type rule struct {
	pattern  string
	literal  int  // the number of bytes of the pattern before the first special one
	base     bool // the pattern is matched against the last part of a path
	settings []setting
}

// The limits on the .gitattributes files of a folder and of the folders that contain it.
const (
	maxHeld      = 16 << 20 // bytes of memory
	maxMacros    = 1000
	ruleSize     = 120 // bytes of memory, without the pattern
	settingSize  = 64  // bytes of memory, without the value
	settingSteps = 10  // the steps that a setting costs, see [budget]
)

// attributes are the .gitattributes files of a folder and of the folders that contain it.
type attributes struct {
	files  []attributesFile // outermost first
	macros map[string][]setting
	held   int // bytes of memory of all files
}

// attributesFile is a .gitattributes file.
type attributesFile struct {
	folder string
	rules  []rule
	held   int // bytes of memory
}

// enter adds the .gitattributes file of a folder. Only that of the repository's own folder can define macros.
func (a *attributes) enter(folder string, text []byte) error {
	if folder == "" || a.macros == nil {
		a.macros = map[string][]setting{"binary": {{"diff", isFalse}, {"merge", isFalse}, {"text", isFalse}}}
	}
	content, _, _ := strings.Cut(string(text), "\x00")
	// Rules can use macros that are defined after them.
	if folder == "" {
		for line := range strings.SplitSeq(content, "\n") {
			if r, macro, ok := parseLine(line); ok && macro {
				a.macros[strings.Clone(r.pattern)] = nil
			}
			if len(a.macros) > maxMacros {
				return refuseFile("its .gitattributes has more than %d macros", maxMacros)
			}
		}
	}
	file := attributesFile{folder: folder}
	for line := range strings.SplitSeq(content, "\n") {
		r, macro, ok := parseLine(line)
		if !ok || macro && folder != "" {
			continue
		}
		r = a.compact(r)
		if macro {
			a.macros[r.pattern] = r.settings
		} else if len(r.settings) > 0 {
			file.rules = append(file.rules, r)
		} else {
			continue
		}
		size := ruleSize + len(r.pattern)
		for _, s := range r.settings {
			size += settingSize + len(s.value)
		}
		file.held += size
		if a.held += size; a.held > maxHeld {
			return refuseFile("the .gitattributes of %s and of the folders that contain it need more than %d MiB", shown(folder), maxHeld>>20)
		}
	}
	a.files = append(a.files, file)
	return nil
}

// compact returns a rule with only the settings that matter: most lines have none. The rule does not hold the file in memory.
func (a *attributes) compact(r rule) rule {
	var settings []setting
	for _, s := range r.settings {
		if a.matters(s) {
			settings = append(settings, setting{strings.Clone(s.name), value(strings.Clone(string(s.value)))})
		}
	}
	r.pattern, r.settings = strings.Clone(r.pattern), settings
	return r
}

// matters reports whether a setting can change the content of a file.
func (a *attributes) matters(s setting) bool {
	_, isMacro := a.macros[s.name]
	return isMacro || slices.Contains(names, s.name)
}

// leave removes the .gitattributes file of a folder, if it has one.
func (a *attributes) leave(folder string) {
	if last := len(a.files) - 1; last >= 0 && a.files[last].folder == folder {
		a.held -= a.files[last].held
		a.files[last] = attributesFile{}
		a.files = a.files[:last]
	}
	if folder == "" {
		a.macros = nil
	}
}

// of returns the values of the attributes of a file.
func (a *attributes) of(file string, b *budget) (map[string]value, error) {
	found := map[string]value{}
	for _, f := range slices.Backward(a.files) {
		name := file
		if f.folder != "" {
			name = file[len(f.folder)+1:]
		}
		for _, r := range slices.Backward(f.rules) {
			matched, steps := r.matches(name)
			if err := b.match(1 + steps); err != nil {
				return nil, err
			}
			if matched {
				if err := b.match(int64(a.fill(found, r.settings))); err != nil {
					return nil, err
				}
			}
		}
	}
	return found, nil
}

// fill sets the attributes that have no value yet, the last first, and returns the number of steps.
func (a *attributes) fill(found map[string]value, settings []setting) int {
	steps := settingSteps * len(settings)
	for _, s := range slices.Backward(settings) {
		if _, set := found[s.name]; set {
			continue
		}
		found[s.name] = s.value
		if macro, ok := a.macros[s.name]; ok && s.value == isTrue {
			steps += a.fill(found, macro)
		}
	}
	return steps
}

// matches reports whether a rule is for a file, whose name is relative to the folder of the rule, and the number of steps.
func (r rule) matches(name string) (ok bool, steps int64) {
	if r.base {
		name = path.Base(name)
	}
	name, ok = strings.CutPrefix(name, r.pattern[:r.literal])
	if !ok {
		return false, 0
	}
	// Like Git, the glob sees only what follows the literal beginning.
	g := glob{pattern: r.pattern[r.literal:], inPath: !r.base}
	ok = g.match(name)
	return ok, g.steps
}

const blank = " \t\r\n"

// parseLine parses a line of a .gitattributes file as Git does. Lines that Git ignores are not ok. The pattern of a macro
// is its name.
func parseLine(line string) (r rule, macro, ok bool) {
	text := strings.TrimLeft(line, blank)
	if text == "" || text[0] == '#' || len(line) >= maxLine {
		return rule{}, false, false
	}
	pattern, rest, quoted := unquote(text)
	if !quoted {
		end := strings.IndexAny(text, blank)
		if end < 0 {
			end = len(text)
		}
		pattern, rest = text[:end], text[end:]
	}
	if name, ok := strings.CutPrefix(pattern, "[attr]"); ok && name != "" {
		macro = true
		name = strings.TrimLeft(name, blank)
		if end := strings.IndexAny(name, blank); end >= 0 {
			name = name[:end]
		}
		if pattern = name; !isAttribute(name) {
			return rule{}, false, false
		}
	}
	for field := range strings.FieldsFuncSeq(rest, func(c rune) bool { return strings.ContainsRune(blank, c) }) {
		s, ok := parseSetting(field)
		if !ok {
			return rule{}, false, false
		}
		r.settings = append(r.settings, s)
	}
	if macro {
		r.pattern = pattern
		return r, true, true
	}
	// A pattern that ends with a slash is for folders, and no pattern may begin with an exclamation mark.
	if pattern == "" || pattern[0] == '!' || strings.HasSuffix(pattern, "/") {
		return rule{}, false, false
	}
	r.base = !strings.Contains(pattern, "/")
	r.pattern = strings.TrimPrefix(pattern, "/")
	r.literal = strings.IndexFunc(r.pattern, func(c rune) bool { return c < 0x80 && isSpecial(byte(c)) })
	if r.literal < 0 {
		r.literal = len(r.pattern)
	}
	return r, false, r.pattern != ""
}

// parseSetting parses an attribute and its value.
func parseSetting(field string) (setting, bool) {
	name, text, given := strings.Cut(field, "=")
	s := setting{value: isTrue}
	switch {
	case strings.HasPrefix(name, "-"):
		name, s.value = name[1:], isFalse
	case strings.HasPrefix(name, "!"):
		name, s.value = name[1:], isUnset
	case given:
		s.value = value(text)
	}
	s.name = name
	return s, isAttribute(name)
}

// isAttribute reports whether Git accepts the name of an attribute.
func isAttribute(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}

// unquote returns the pattern at the beginning of a line that is quoted as in C, and the rest of the line.
func unquote(text string) (pattern, rest string, ok bool) {
	if text[0] != '"' {
		return "", "", false
	}
	var out []byte
	for i := 1; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			return string(out), text[i+1:], true
		case c != '\\':
			out = append(out, c)
			continue
		}
		if i++; i == len(text) {
			break
		}
		switch k := strings.IndexByte(`abfnrtv\"`, text[i]); {
		case k >= 0:
			out = append(out, "\a\b\f\n\r\t\v\\\""[k])
		case text[i] >= '0' && text[i] <= '3' && i+2 < len(text) && isOctal(text[i+1]) && isOctal(text[i+2]):
			out = append(out, (text[i]-'0')<<6|(text[i+1]-'0')<<3|(text[i+2]-'0'))
			i += 2
		default:
			return "", "", false
		}
	}
	return "", "", false
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }
