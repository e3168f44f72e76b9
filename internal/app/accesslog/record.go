package accesslog

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	"github.com/ocibridge/ocibridge/gateway/lastuse"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// record is a line of the log. Its texts are valid until the next line is read.
type record struct {
	at      time.Time
	request bool // the line is about a request; if not, all fields below are zero
	older   bool // a release that does not log versions answered the request with a package

	kind, address, version []byte // the version that the request uses; nil if it uses none
	method, path           []byte
	status                 int
	sent                   string // how much of a package was sent, as package gateway logs it
	subject, client        []byte
}

// Values of record.sent.
const (
	sentWhole    = "whole"
	sentEnd      = "end"
	sentRedirect = "redirect"
)

// uses reports whether a request uses a version. See the package's doc.
func (r *record) uses() bool {
	return r.version != nil && lastuse.Counts(r.method, r.path, r.status)
}

// Beginnings of lines: serve writes the attributes time, level and msg first, in this order.
const (
	textStart = "time="
	jsonStart = `{"time":"`
)

// parser parses lines. It allocates no memory for a line without escapes.
type parser struct {
	r           record
	timed, says bool
	// start and set are methods of the parser. As values, they are made once, and not for each line.
	start, set func(name, value []byte) bool
}

func newParser() *parser {
	p := &parser{}
	p.start, p.set = p.begin, p.r.set
	return p
}

// parse parses a line of the log, in either format. It reports whether serve can have written the line. whole is false if
// the line's end is missing. Only lines about a request must be whole. The record is valid until the next call.
func (p *parser) parse(line []byte, whole bool) (*record, bool) {
	p.r, p.timed, p.says = record{}, false, false
	line = bytes.TrimRight(line, "\r\n")
	switch {
	case bytes.HasPrefix(line, []byte(textStart)):
		return &p.r, p.parseAs(line, whole, textFields, " version=", ".zip ")
	case bytes.HasPrefix(line, []byte(jsonStart)):
		return &p.r, p.parseAs(line, whole, jsonFields, `,"version":`, `.zip"`)
	}
	return nil, false
}

// fields is an iterator over the attributes of a line. It reports whether the line is well-formed. It stops early if yield
// returns false.
type fields func(line []byte, yield func(name, value []byte) bool) bool

// parseAs parses a line. The texts version and zip occur in lines that name a version, and in lines whose path ends like
// that of a package. They may occur in other lines, too. Lines without them are not parsed to their end.
func (p *parser) parseAs(line []byte, whole bool, all fields, version, zip string) bool {
	r := &p.r
	if ok := all(line, p.start); !ok || !p.timed || !p.says {
		return false
	}
	if !r.request {
		return true
	}
	named := bytes.Contains(line, []byte(version))
	switch {
	case !whole:
		return false
	case !named && !bytes.Contains(line, []byte(zip)):
		return true
	}
	r.status = -1
	if ok := all(line, p.set); !ok || r.status < 0 || r.address == nil != (r.version == nil) {
		return false
	}
	r.older = r.version == nil && r.status == 200 && string(r.method) == "GET" && bytes.HasSuffix(r.path, []byte(".zip"))
	return true
}

// begin reads the attributes before those of a request. It returns false after the last one.
func (p *parser) begin(name, value []byte) bool {
	switch string(name) {
	case "time":
		p.timed = p.r.at.UnmarshalText(value) == nil
	case "msg":
		p.r.request, p.says = string(value) == "request", true
		return false
	}
	return p.timed
}

// set sets the field that has the name of an attribute. It returns false if the value is invalid.
func (r *record) set(name, value []byte) bool {
	switch string(name) {
	case "method":
		r.method = value
	case "path":
		r.path = value
	case "status":
		n, err := strconv.Atoi(string(value))
		r.status = n
		return err == nil && n >= 0
	case string(subject.Provider), string(subject.Module):
		r.kind, r.address = name, value
	case "version":
		r.version = value
	case "sent":
		r.sent = sentBy(value)
	case "subject":
		r.subject = value
	case "client":
		r.client = value
	}
	return true
}

func sentBy(value []byte) string {
	for _, known := range []string{sentWhole, sentEnd, sentRedirect} {
		if string(value) == known {
			return known
		}
	}
	return ""
}

// textFields reads the attributes of a line of [log/slog.TextHandler]: name=value, separated by one space. A value with
// other characters than printable ones, or with a space, a quote or an equals sign, is a Go string.
func textFields(line []byte, yield func(name, value []byte) bool) bool {
	for len(line) > 0 {
		name, rest, ok := bytes.Cut(line, []byte("="))
		if !ok || len(name) == 0 || name[0] == '"' {
			return false
		}
		var value []byte
		if len(rest) > 0 && rest[0] == '"' {
			if value, rest, ok = goString(rest); !ok {
				return false
			}
		} else if at := bytes.IndexByte(rest, ' '); at >= 0 {
			value, rest = rest[:at], rest[at:]
		} else {
			value, rest = rest, nil
		}
		if len(rest) > 0 && rest[0] != ' ' {
			return false
		}
		if !yield(name, value) {
			return true
		}
		line = bytes.TrimPrefix(rest, []byte(" "))
	}
	return true
}

// goString reads a Go string at the start of a text, and returns the rest of the text.
func goString(text []byte) (value, rest []byte, ok bool) {
	end, escaped := closing(text)
	if end < 0 {
		return nil, nil, false
	}
	if !escaped {
		return text[1:end], text[end+1:], true
	}
	s, err := strconv.Unquote(string(text[:end+1]))
	return []byte(s), text[end+1:], err == nil
}

// closing returns the index of the quote that ends the string at the start of a text, or -1, and whether the string has
// escapes.
func closing(text []byte) (end int, escaped bool) {
	end = 1 + bytes.IndexByte(text[1:], '"')
	if end > 0 && bytes.IndexByte(text[1:end], '\\') < 0 {
		return end, false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i, true
		case '\\':
			i++
		}
	}
	return -1, true
}

// jsonFields reads the members of a line of [log/slog.JSONHandler], an object without spaces between its tokens. The
// value of a member that is a string is its text. All other values are passed as they are; objects and arrays do not
// occur in lines about requests, and end the line.
func jsonFields(line []byte, yield func(name, value []byte) bool) bool {
	for first := true; len(line) > 0; first = false {
		if line[0] == '}' {
			return len(line) == 1
		}
		if (line[0] == '{') != first || line[0] != '{' && line[0] != ',' {
			return false
		}
		name, rest, ok := jsonString(line[1:])
		if !ok || len(rest) < 2 || rest[0] != ':' {
			return false
		}
		var value []byte
		if rest = rest[1:]; rest[0] == '"' {
			if value, rest, ok = jsonString(rest); !ok {
				return false
			}
		} else {
			at := bytes.IndexAny(rest, ",}[{")
			if at <= 0 {
				return false
			}
			value, rest = rest[:at], rest[at:]
		}
		if !yield(name, value) {
			return true
		}
		line = rest
	}
	return false
}

// jsonString reads a JSON string at the start of a text, and returns the rest of the text.
func jsonString(text []byte) (value, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, false
	}
	end, escaped := closing(text)
	if end < 0 {
		return nil, nil, false
	}
	if !escaped {
		return text[1:end], text[end+1:], true
	}
	var s string
	err := json.Unmarshal(text[:end+1], &s)
	return []byte(s), text[end+1:], err == nil
}

// host returns the address of a connection without its port.
func host(client []byte) string {
	if a, err := netip.ParseAddrPort(string(client)); err == nil {
		return a.Addr().Unmap().String()
	}
	return string(client)
}
