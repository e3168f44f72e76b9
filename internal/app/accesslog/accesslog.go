// Package accesslog finds out which versions clients use, and who uses them, from the logs of "ocibridge serve". It reads
// each log once, as a stream. It stores nothing, and sends no requests.
//
// A request uses a version if it is about one version's packages: a GET request for a package or for the description
// that leads to it, or a request of any method for the manifest that a version's tag names in the embedded registry. The
// request counts unless the gateway refused it or failed. A broken-off response counts as a use.
//
// A use is an installation if the client was sent the last byte of a package, in one response or as the end of several,
// or if it was redirected to the registry, which sends the package itself. Lists of versions, HEAD and conditional
// requests, the beginnings of packages and broken-off responses are no installations.
//
// Invariants:
//
//   - The use of memory depends neither on the size of the logs nor on the length of their lines, and is bounded by
//     [MaxVersions] and [MaxUsers].
//   - The result does not depend on the order of the logs, or of their lines.
package accesslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// Bounds of what a [Reader] remembers.
const (
	// MaxVersions is the maximum number of versions. Uses of further versions are counted in Logs.LeftOut.
	MaxVersions = 10_000
	// MaxUsers is the maximum number of users, of all versions together. Uses of a version by further users count for the
	// version and for the user [Others].
	MaxUsers = 20_000
	// maxNames is the maximum number of bytes of all names of users together.
	maxNames = 2 << 20
	// maxDays is the maximum number of days with lines.
	maxDays = 10_000
)

// Others is the name of all users that are not remembered one by one, because there are more than [MaxUsers].
const Others = "others"

// Options configure a [Reader].
type Options struct {
	// Selects reports whether the uses of a version count. If nil, all count.
	Selects func(subject.Address, provider.Version) bool
	Since   time.Time // earlier lines do not count; zero: all lines count
}

// Reader reads logs. It is not safe for concurrent use.
type Reader struct {
	o         Options
	logs      Logs
	days      map[int64]struct{} // the days that have lines, in days since 1970
	day       int64              // the day of the last line
	ids       map[string]int32   // the index in versions by kind, address and version, or ignored
	users     map[string]int32   // the index in names
	names     []string
	nameBytes int
	versions  []*version
	pairs     map[pair]int32 // the index in uses
	uses      []usedBy
	key       []byte
	parser    *parser
}

// version is a version that was used.
type version struct {
	of      subject.Address
	version provider.Version
	use
	users  int32 // the index in Reader.uses of the user that was added last, or none
	others use
}

// none is the index of no use.
const none = -1

// use sums up uses.
type use struct {
	last, installs, redirects int64 // last is in nanoseconds since 1970
}

// usedBy sums up the uses of a version by one user. It is an element of a list, because most versions have few users.
type usedBy struct {
	use
	name int32 // the index in Reader.names
	next int32 // the index in Reader.uses of another user of the same version, or none
}

type pair struct{ version, user int32 }

func (u *use) add(r *record) {
	u.last = max(u.last, r.at.UnixNano())
	switch r.sent {
	case sentWhole, sentEnd:
		u.installs++
	case sentRedirect:
		u.installs++
		u.redirects++
	}
}

// NewReader returns a reader that has read no log.
func NewReader(o Options) *Reader {
	return &Reader{o: o, days: map[int64]struct{}{}, ids: map[string]int32{}, users: map[string]int32{}, pairs: map[pair]int32{}, parser: newParser()}
}

// Logs describes the logs that were read.
type Logs struct {
	// From and Until are the times of the first and the last line. They are zero if there is no line.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	Lines int64     `json:"lines"`
	// Requests is the number of lines about requests, without those before Options.Since.
	Requests int64 `json:"requests"`
	// Broken is the number of lines that serve has not written, or that are incomplete.
	Broken int64 `json:"broken"`
	// Older is the number of packages that an older release of serve sent, whose log does not name their versions.
	Older int64 `json:"older"`
	// LeftOut is the number of uses that are missing, because there were more than [MaxVersions].
	LeftOut int64 `json:"left_out"`

	olderUntil time.Time
}

// Reach returns the time from which on the logs name every version that was used.
func (l Logs) Reach() time.Time {
	if l.olderUntil.After(l.From) {
		return l.olderUntil
	}
	return l.From
}

// Read reads a log to its end. The log may be compressed with gzip, zstd or bzip2. name is its name in errors.
func (u *Reader) Read(ctx context.Context, name string, log io.Reader) error {
	plain, end, err := decompress(files.ContextReader{Context: ctx, Reader: log})
	if err != nil {
		return fmt.Errorf("read the log %s: %w", name, err)
	}
	defer end()
	before := u.logs
	in := newLines(plain)
	for {
		line, whole, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			err = hint.Wrap(err, "it needs too much memory: zstd --decompress --stdout --memory=2GB FILE | ocibridge usage")
		}
		if err != nil {
			return fmt.Errorf("read the log %s, line %d: %w", name, u.logs.Lines-before.Lines+1, err)
		}
		u.line(line, whole)
	}
	if n := u.logs.Lines - before.Lines; n > 0 && n == u.logs.Broken-before.Broken {
		return hint.New(fmt.Sprintf("%s is no log of ocibridge serve: none of its %d lines is one of serve's", name, n),
			"a line begins with time= or {\"time\": without what other programs put before it, as journalctl -o cat and kubectl logs print it")
	}
	return nil
}

// line adds a line. whole is false if the line's end is missing because the line is too long.
func (u *Reader) line(line []byte, whole bool) {
	u.logs.Lines++
	r, ok := u.parser.parse(line, whole)
	if !ok {
		u.logs.Broken++
		return
	}
	if r.at.Before(u.o.Since) {
		return
	}
	u.covers(r.at)
	if !r.request {
		return
	}
	u.logs.Requests++
	switch {
	case r.older:
		u.logs.Older++
		if r.at.After(u.logs.olderUntil) {
			u.logs.olderUntil = r.at
		}
	case r.uses():
		u.use(r)
	}
}

// covers records the time of a line.
func (u *Reader) covers(at time.Time) {
	if u.logs.From.IsZero() || at.Before(u.logs.From) {
		u.logs.From = at
	}
	if at.After(u.logs.Until) {
		u.logs.Until = at
	}
	if day := at.Unix() / secondsOfDay; day != u.day && len(u.days) < maxDays {
		u.days[day], u.day = struct{}{}, day
	}
}

const secondsOfDay = 24 * 60 * 60

// SilentDays returns the number of whole days in UTC between two times on which the logs have no line.
func (u *Reader) SilentDays(from, until time.Time) (n int) {
	for day := from.Unix()/secondsOfDay + 1; day < until.Unix()/secondsOfDay; day++ {
		if _, ok := u.days[day]; !ok {
			n++
		}
	}
	return n
}

// use adds the use of a version.
func (u *Reader) use(r *record) {
	u.key = u.key[:0]
	for _, part := range [...][]byte{r.kind, r.address, r.version} {
		u.key = append(append(u.key, part...), ' ')
	}
	id, known := u.ids[string(u.key)]
	if !known && u.o.Selects == nil && len(u.versions) >= MaxVersions {
		u.logs.LeftOut++
		return
	}
	if !known {
		v, err := r.parsed()
		if err != nil {
			u.logs.Broken++
			return
		}
		id = ignored
		if u.o.Selects == nil || u.o.Selects(v.of, v.version) {
			if len(u.versions) >= MaxVersions {
				u.logs.LeftOut++
				return
			}
			id = int32(len(u.versions))
			u.versions = append(u.versions, v)
		}
		if id != ignored || len(u.ids) < MaxVersions {
			u.ids[string(u.key)] = id
		}
	}
	if id == ignored {
		return
	}
	u.versions[id].add(r)
	u.user(id, r).add(r)
}

// ignored is the index of versions that Options.Selects does not select.
const ignored = -1

// user returns the uses of a version by the user of a request.
func (u *Reader) user(id int32, r *record) *use {
	v := u.versions[id]
	u.key = append(u.key[:0], r.subject...)
	if len(u.key) == 0 {
		u.key = append(append(u.key, "client "...), host(r.client)...)
	}
	name, known := u.users[string(u.key)]
	if known {
		if found, ok := u.pairs[pair{id, name}]; ok {
			return &u.uses[found].use
		}
	}
	if len(u.pairs) >= MaxUsers || !known && u.nameBytes+len(u.key) > maxNames {
		return &v.others
	}
	if !known {
		name = int32(len(u.names))
		u.names = append(u.names, string(u.key))
		u.nameBytes += len(u.key)
		u.users[u.names[name]] = name
	}
	found := int32(len(u.uses))
	u.uses = append(u.uses, usedBy{name: name, next: v.users})
	u.pairs[pair{id, name}], v.users = found, found
	return &u.uses[found].use
}

// Logs describes the logs that were read so far.
func (u *Reader) Logs() Logs { return u.logs }

// Used says who has used a version.
type Used struct {
	Version provider.Version `json:"version"`
	Use
	Users []User `json:"users"` // the last user first
}

// User is a client, or several, that the gateway knows by one name.
type User struct {
	// Name is the subject in the log, such as "token ci", or "client ADDRESS" if access was not controlled, or [Others].
	Name string `json:"name"`
	Use
}

// Use sums up uses.
type Use struct {
	Last time.Time `json:"last_use,omitzero"` // zero: never
	// Installs is the number of packages that clients were sent, and Redirects those of them that the registry sent.
	Installs  int64 `json:"installs"`
	Redirects int64 `json:"redirects"`
}

func (u use) public() Use {
	return Use{time.Unix(0, u.last).UTC().Truncate(time.Second), u.installs, u.redirects}
}

// address is the address of a provider or a module.
type address interface {
	comparable
	subject.Address
}

// Of lists the versions of one kind that were used, newest first, by address.
func Of[A address](u *Reader) map[A][]Used {
	out := map[A][]Used{}
	for _, v := range u.versions {
		if a, ok := v.of.(A); ok {
			out[a] = append(out[a], u.used(v))
		}
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b Used) int { return b.Version.Compare(a.Version) })
	}
	return out
}

func (u *Reader) used(v *version) Used {
	out := Used{Version: v.version, Use: v.public(), Users: []User{}}
	for i := v.users; i != none; i = u.uses[i].next {
		out.Users = append(out.Users, User{u.names[u.uses[i].name], u.uses[i].public()})
	}
	slices.SortFunc(out.Users, func(a, b User) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Name, b.Name)) })
	if v.others.last > 0 {
		out.Users = append(out.Users, User{Others, v.others.public()})
	}
	return out
}

// parsed returns the version that a request uses.
func (r *record) parsed() (*version, error) {
	out := &version{users: none}
	var err error
	if string(r.kind) == string(subject.Module) {
		out.of, err = asAddress(module.ParseAddress(string(r.address)))
	} else {
		out.of, err = asAddress(provider.ParseAddress(string(r.address)))
	}
	if err == nil {
		out.version, err = provider.ParseVersion(string(r.version))
	}
	return out, err
}

func asAddress[A subject.Address](a A, err error) (subject.Address, error) { return a, err }
