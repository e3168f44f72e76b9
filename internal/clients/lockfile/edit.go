package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// With returns the file with the given hashes added to existing entries, unless the entries already contain these
// hashes. If there is nothing to add, With returns f.
func (f *File) With(add map[provider.Address][]provider.Hash) (*File, error) {
	inserts := insertions{}
	for a, hashes := range add {
		p, ok := f.Provider(a)
		if !ok {
			return nil, fmt.Errorf("%s has no entry for %s", f.Name, a)
		}
		p.insert(p.missing(hashes), inserts)
	}
	if len(inserts) == 0 {
		return f, nil
	}
	next, err := Parse(f.Name, inserts.apply(f.src))
	if err != nil {
		return nil, fmt.Errorf("with hashes added: %w", err)
	}
	for a, hashes := range add {
		p, _ := next.Provider(a)
		if left := p.missing(hashes); len(left) > 0 || len(next.Providers) != len(f.Providers) {
			return nil, fmt.Errorf("%s: %v could not be added to %s", f.Name, left, a)
		}
	}
	return next, nil
}

// missing returns those of the given hashes that the entry lacks, sorted and without duplicates.
func (p Provider) missing(hashes []provider.Hash) []string {
	var out []string
	for _, h := range hashes {
		if s := h.String(); !h.IsZero() && !slices.Contains(p.Hashes, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// insertions contains the texts to insert into a file. The keys are byte offsets.
type insertions map[int]string

// apply returns the file with the texts inserted. If the file has CRLF line endings, as git can check out text files, the
// inserted lines end in CRLF, too. A line that ends in LF would show up as a change of its own.
func (i insertions) apply(src []byte) []byte {
	newline := "\n"
	if bytes.Contains(src, []byte("\r\n")) {
		newline = "\r\n"
	}
	var out bytes.Buffer
	at := 0
	for _, next := range slices.Sorted(maps.Keys(i)) {
		out.Write(src[at:next])
		out.WriteString(strings.ReplaceAll(i[next], "\n", newline))
		at = next
	}
	out.Write(src[at:])
	return out.Bytes()
}

// insert inserts sorted hashes into the list of the entry, each before the first hash that sorts after it. Clients write
// sorted lists, and a sorted list stays sorted.
func (p Provider) insert(hashes []string, into insertions) {
	if p.Hashes == nil && len(hashes) > 0 {
		p.insertList(hashes, into)
		return
	}
	for _, h := range hashes {
		if next := slices.IndexFunc(p.Hashes, func(s string) bool { return s > h }); next >= 0 {
			into[p.ranges[next].Start.Byte] += `"` + h + "\",\n    "
		} else {
			into[p.ranges[len(p.ranges)-1].End.Byte] += ",\n    \"" + h + `"`
		}
	}
}

// insertList inserts a list of hashes into an entry that has no list, after the entry's last argument.
func (p Provider) insertList(hashes []string, into insertions) {
	list := "\n  hashes = [\n    \"" + strings.Join(hashes, "\",\n    \"") + "\",\n  ]"
	if r := p.body.SrcRange; r.Start.Line == r.End.Line { // a block on one line can have only one argument
		into[r.Start.Byte] = "\n  "
		list += "\n"
	}
	at := 0
	for _, attr := range p.body.Attributes {
		at = max(at, attr.SrcRange.End.Byte)
	}
	into[at] = list
}

// Replacement is new content in a temporary file next to a lock file.
type Replacement struct {
	path string // the lock file; if File.Name is a link, the target of the link
	temp string
	old  []byte
}

// Prepare writes new content to a temporary file next to the lock file f, with the same permissions. The lock file stays
// unchanged until [Replacement.Commit]. The caller must always call [Replacement.Discard] at the end.
func (f *File) Prepare(content []byte) (_ *Replacement, err error) {
	r := &Replacement{old: f.src}
	defer func() {
		if err != nil {
			r.Discard()
			err = hint.Wrap(err, "the folder of the lock file must be writable; nothing was changed")
		}
	}()
	if r.path, err = filepath.EvalSymlinks(f.Name); err != nil {
		return nil, err
	}
	info, err := os.Stat(r.path)
	if err != nil {
		return nil, err
	}
	temp, err := os.CreateTemp(filepath.Dir(r.path), Name+".*.tmp")
	if err != nil {
		return nil, err
	}
	r.temp = temp.Name()
	_, writeErr := temp.Write(content)
	return r, errors.Join(temp.Chmod(info.Mode().Perm()), writeErr, temp.Sync(), temp.Close())
}

// Commit replaces the lock file by the new content in one step. It fails if the lock file has changed since it was read.
func (r *Replacement) Commit() error {
	now, err := files.Read(r.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, r.old) {
		return hint.New(fmt.Sprintf("%s was changed by something else in the meantime", r.path), "it was left as it is; run this again")
	}
	if err := os.Rename(r.temp, r.path); err != nil {
		return err
	}
	r.temp = ""
	return nil
}

// Discard removes the temporary file. It does nothing after Commit.
func (r *Replacement) Discard() {
	if r.temp != "" {
		os.Remove(r.temp)
	}
}
