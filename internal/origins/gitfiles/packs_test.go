package gitfiles

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ocibridge/ocibridge/internal/base/fill"
)

// packed builds a pack.
type packed struct {
	body    bytes.Buffer
	count   uint32
	offsets []int
	zlib    *zlib.Writer
}

// add adds an object of a claimed size, and returns its number. For a delta, base is the number or the ID of its base.
func (p *packed) add(kind plumbing.ObjectType, base any, size int, data io.Reader) int {
	p.offsets = append(p.offsets, 12+p.body.Len())
	p.count++
	c := byte(kind)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	p.body.WriteByte(c)
	switch base := base.(type) {
	case int:
		back := p.offsets[len(p.offsets)-1] - p.offsets[base]
		raw := []byte{byte(back & 0x7f)}
		for back >>= 7; back > 0; back >>= 7 {
			back--
			raw = append([]byte{0x80 | byte(back&0x7f)}, raw...)
		}
		p.body.Write(raw)
	case plumbing.Hash:
		p.body.Write(base[:])
	}
	w := p.zlib
	if w == nil {
		w = zlib.NewWriter(&p.body)
		p.zlib = w
	}
	w.Reset(&p.body)
	if _, err := io.Copy(w, data); err != nil {
		panic(err)
	}
	w.Close()
	return len(p.offsets) - 1
}

// object adds an object, and returns its ID.
func (p *packed) object(kind plumbing.ObjectType, data string) plumbing.Hash {
	p.add(kind, nil, len(data), strings.NewReader(data))
	return plumbing.ComputeHash(kind, []byte(data))
}

// commit adds a commit of a tree, and returns its ID.
func (p *packed) commit(tree plumbing.Hash) plumbing.Hash {
	return p.object(plumbing.CommitObject, "tree "+tree.String()+"\nauthor a <a@example.com> 1 +0000\ncommitter a <a@example.com> 1 +0000\n\nx\n")
}

func (p *packed) bytes() []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.count)
	out = append(out, p.body.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// treeOf returns the content of a tree.
func treeOf(entries ...any) string {
	var out strings.Builder
	for i := 0; i < len(entries); i += 2 {
		id := entries[i+1].(plumbing.Hash)
		fmt.Fprintf(&out, "%s\x00%s", entries[i], id[:])
	}
	return out.String()
}

// sizes returns the header of a delta.
func sizes(n ...int) string {
	var out []byte
	for _, n := range n {
		out = binary.AppendUvarint(out, uint64(n))
	}
	return string(out)
}

// serve makes the server answer with a pack, whose commit is HEAD.
func (s *server) serve(head plumbing.Hash, pack []byte) {
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			line := head.String() + " HEAD\x00agent=x\n"
			fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s0000", 4+len(line), line)
			return true
		}
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "0008NAK\n")
		_, _ = w.Write(pack)
		return true
	}
}

// TestPacks: packs that Git servers do not send.
func TestPacks(t *testing.T) {
	s := newServer(t)
	build := func(f func(*packed) plumbing.Hash) (plumbing.Hash, []byte) {
		p := &packed{}
		head := f(p)
		return head, p.bytes()
	}
	oneFile := func(p *packed, blob plumbing.Hash) plumbing.Hash {
		return p.commit(p.object(plumbing.TreeObject, treeOf("100644 f", blob)))
	}
	text := strings.Repeat("0123456789abcdef", 10)
	changed := "new " + text[:100] // by the delta below
	delta := sizes(len(text), len(changed)) + "\x04new \x90" + string(rune(100))
	id := plumbing.ComputeHash(plumbing.BlobObject, []byte(changed))
	head, good := build(func(p *packed) plumbing.Hash {
		p.object(plumbing.BlobObject, text)
		p.add(plumbing.OFSDeltaObject, 0, len(delta), strings.NewReader(delta))
		return oneFile(p, id)
	})
	for name, f := range map[string]func(*packed) plumbing.Hash{
		"delta on an offset": func(p *packed) plumbing.Hash {
			p.object(plumbing.BlobObject, text)
			p.add(plumbing.OFSDeltaObject, 0, len(delta), strings.NewReader(delta))
			return oneFile(p, id)
		},
		"delta on an ID, before its base, which is there twice": func(p *packed) plumbing.Hash {
			p.add(plumbing.REFDeltaObject, plumbing.ComputeHash(plumbing.BlobObject, []byte(text)), len(delta), strings.NewReader(delta))
			p.object(plumbing.BlobObject, text)
			p.object(plumbing.BlobObject, text)
			return oneFile(p, id)
		},
		"delta on a delta by its ID": func(p *packed) plumbing.Hash {
			again := sizes(len(changed), len(text)) + "\x91\x04\x64\x3c" + text[100:]
			p.add(plumbing.REFDeltaObject, id, len(again), strings.NewReader(again))
			other := strings.Replace(text, "0", "x", 1)
			all := sizes(len(other), len(changed)) + "\x05new 0\x91\x01\x63"
			at := p.add(plumbing.BlobObject, nil, len(other), strings.NewReader(other))
			p.add(plumbing.OFSDeltaObject, at, len(all), strings.NewReader(all))
			return p.commit(p.object(plumbing.TreeObject, treeOf("100644 f", id, "100644 g", plumbing.ComputeHash(plumbing.BlobObject, []byte(text)))))
		},
	} {
		s.serve(build(f))
		if files, _, err := s.fetch("r", ""); err != nil || files["f"] != changed || files["g"] != "" && files["g"] != text {
			t.Errorf("%s: %q %v", name, files, err)
		}
	}
	for name, c := range map[string]struct {
		f    func(*packed) plumbing.Hash
		want string
	}{
		"no commit":      {func(p *packed) plumbing.Hash { p.object(plumbing.BlobObject, "x"); return id }, "did not send"},
		"no tree":        {func(p *packed) plumbing.Hash { return p.commit(id) }, "did not send the tree"},
		"no blob":        {func(p *packed) plumbing.Hash { return oneFile(p, id) }, "did not send the blob"},
		"blob as tree":   {func(p *packed) plumbing.Hash { return p.commit(p.object(plumbing.BlobObject, "x")) }, "is a blob, and not a tree"},
		"tree as blob":   {func(p *packed) plumbing.Hash { return oneFile(p, p.object(plumbing.TreeObject, "")) }, "is a tree, and not a blob"},
		"blob as commit": {func(p *packed) plumbing.Hash { return p.object(plumbing.BlobObject, "x") }, "is a blob"},
		"odd commit":     {func(p *packed) plumbing.Hash { return p.object(plumbing.CommitObject, "tree x\n") }, "is malformed"},
		"odd tag":        {func(p *packed) plumbing.Hash { return p.object(plumbing.TagObject, "") }, "is malformed"},
		"odd tree":       {func(p *packed) plumbing.Hash { return p.commit(p.object(plumbing.TreeObject, "100644 x\x00")) }, "is malformed"},
		"odd mode":       {func(p *packed) plumbing.Hash { return p.commit(p.object(plumbing.TreeObject, treeOf("1 x", id))) }, "is malformed"},
		"empty name":     {func(p *packed) plumbing.Hash { return p.commit(p.object(plumbing.TreeObject, treeOf("100644 ", id))) }, "would leave"},
		"tags": {func(p *packed) plumbing.Hash {
			tag := oneFile(p, p.object(plumbing.BlobObject, "x"))
			for range maxTags {
				tag = p.object(plumbing.TagObject, "object "+tag.String()+"\ntype tag\n")
			}
			return tag
		}, "more than 10 tags"},
		"unknown kind":   {func(p *packed) plumbing.Hash { p.add(5, nil, 1, strings.NewReader("x")); return id }, "unknown type 5"},
		"longer object":  {func(p *packed) plumbing.Hash { p.add(plumbing.BlobObject, nil, 1, strings.NewReader("xx")); return id }, "declared size"},
		"shorter object": {func(p *packed) plumbing.Hash { p.add(plumbing.BlobObject, nil, 3, strings.NewReader("xx")); return id }, "2 bytes instead of 3"},
		"huge object": {func(p *packed) plumbing.Hash {
			p.add(plumbing.BlobObject, nil, 1<<50, strings.NewReader("xx"))
			return id
		}, "too much work"},
		"missing base": {func(p *packed) plumbing.Hash {
			p.add(plumbing.REFDeltaObject, id, len(delta), strings.NewReader(delta))
			return id
		}, "object that is missing"},
		"huge result":       {deltaOf(text, sizes(len(text), 1<<50)+"\x90\x64"), "too much work"},
		"other base":        {deltaOf(text, sizes(len(text)+1, 100)+"\x90\x64"), "not of 160"},
		"beyond the base":   {deltaOf(text, sizes(len(text), 100)+"\x91\x64\x64"), "malformed"},
		"too long a result": {deltaOf(text, sizes(len(text), 99)+"\x90\x64"), "malformed"},
		"too short":         {deltaOf(text, sizes(len(text), 101)+"\x90\x64"), "malformed"},
		"instruction 0":     {deltaOf(text, sizes(len(text), 101)+"\x90\x64\x00"), "malformed"},
		"cut instruction":   {deltaOf(text, sizes(len(text), 101)+"\x90"), "malformed"},
		"cut text":          {deltaOf(text, sizes(len(text), 101)+"\x20x"), "malformed"},
		"empty delta":       {deltaOf(text, ""), "malformed"},
		"endless size":      {deltaOf(text, strings.Repeat("\xff", 20)), "malformed"},
	} {
		s.serve(build(c.f))
		if _, _, err := s.fetch("r", ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	// Each cut and each changed byte is noticed.
	for i := range good {
		s.serve(head, good[:i])
		if _, _, err := s.fetch("r", ""); err == nil {
			t.Errorf("cut after %d bytes: no error", i)
		}
		changed := bytes.Clone(good)
		changed[i] ^= 0x10
		s.serve(head, changed)
		if _, _, err := s.fetch("r", ""); err == nil {
			t.Errorf("byte %d is wrong: no error", i)
		}
	}
}

func deltaOf(base, delta string) func(*packed) plumbing.Hash {
	return func(p *packed) plumbing.Hash {
		p.object(plumbing.BlobObject, base)
		p.add(plumbing.OFSDeltaObject, 0, len(delta), strings.NewReader(delta))
		return p.object(plumbing.BlobObject, "x")
	}
}

// FuzzPack: a pack is an error, or each object has the ID that its content says. An input is a list of objects, so that most
// packs are read to their end: each has a byte for its kind, one for the base of a delta, one for its size, and its content.
func FuzzPack(f *testing.F) {
	object := func(kind plumbing.ObjectType, base byte, content string) string {
		return string([]byte{byte(kind), base, byte(len(content))}) + content
	}
	text := strings.Repeat("0123456789abcdef", 10)
	delta := sizes(len(text), 104) + "\x04new \x90\x64"
	f.Add([]byte(object(plumbing.BlobObject, 0, text) + object(plumbing.OFSDeltaObject, 0, delta) + object(plumbing.REFDeltaObject, 0, delta) +
		object(plumbing.OFSDeltaObject, 1, sizes(104, 10)+"\x90\x0a") + object(plumbing.TreeObject, 0, treeOf("100644 f", plumbing.ZeroHash)) + object(plumbing.TagObject, 0, "object x")))
	f.Fuzz(func(t *testing.T, in []byte) {
		var build packed
		var ids []plumbing.Hash
		for len(in) >= 3 && len(ids) < 20 {
			kind, at, content := plumbing.ObjectType(in[0]&7), int(in[1]), in[3:min(3+int(in[2]), len(in))]
			in = in[3+len(content):]
			var base any
			switch {
			case kind == plumbing.OFSDeltaObject && len(ids) > 0:
				base = at % len(ids)
			case kind == plumbing.REFDeltaObject && len(ids) > 0:
				base = ids[at%len(ids)]
			case kind.IsDelta():
				return
			}
			build.add(kind, base, len(content), bytes.NewReader(content))
			ids = append(ids, plumbing.ComputeHash(kind, content))
		}
		raw := build.bytes()
		file, err := fill.NewTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(raw); err != nil {
			t.Fatal(err)
		}
		p := newPack(file, Options{}, int64(len(raw)), &budget{work: 1 << 20})
		defer p.close()
		if p.index(t.Context(), 1000) != nil {
			return
		}
		for i, o := range p.objects {
			content, err := p.read(int32(i), 1<<20)
			if errors.Is(err, ErrRefused) {
				continue
			}
			if err != nil || plumbing.ComputeHash(o.kind, content) != o.id {
				t.Errorf("object %d: %v", i, err)
			}
			if o.kind == plumbing.TreeObject {
				for len(content) > 0 && err == nil {
					_, content, err = cutEntry(content)
				}
			}
		}
	})
}

// FuzzAttributes: attributes of any content are found within the limit of steps.
func FuzzAttributes(f *testing.F) {
	f.Add("[attr]a text eol=crlf\n*.tf a\n\"x\\303\\244\" -a\n**/[!a-z[:digit:]]*\\? !text ident", "x/y.tf")
	f.Fuzz(func(t *testing.T, text, name string) {
		if name == "" || strings.Contains(name, "\x00") {
			return
		}
		var a attributes
		if a.enter("", []byte(text)) != nil || a.enter("x", []byte(text)) != nil {
			return
		}
		b := &budget{rules: 100_000}
		values, err := a.of("x/"+name, b)
		if (err != nil) != (b.rules < 0) {
			t.Errorf("%v with %d steps left", err, b.rules)
		}
		if err == nil {
			_, _ = newConversion(name, values)
		}
	})
}
