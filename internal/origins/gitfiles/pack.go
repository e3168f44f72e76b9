package gitfiles

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	objectWork = 2000    // the work that an object costs, whatever its size
	maxTree    = 8 << 20 // bytes of a commit, a tag or a tree
	maxChain   = 4095    // deltas on deltas, as in Git
	maxTags    = 10      // tags of tags
)

// pack is a pack in a temporary file, with the ID of each object. Objects are looked up by the ID that was computed from
// their content, so everything that is read below a commit's ID belongs to the commit.
type pack struct {
	file    *fill.Temp
	scanner *packfile.Scanner
	size    int64
	budget  *budget
	heap    *heap

	objects []object // by offset
	byID    []int32  // the indexes of objects, by ID
	onBase  []int32  // the indexes of deltas whose base is known by its offset, by base
	onID    []onID   // the deltas whose base is known by its ID, by that ID
}

// object is an object in a pack.
type object struct {
	offset int64
	size   int64 // bytes, after deltas are applied
	base   int32 // the index of the base of a delta
	kind   plumbing.ObjectType
	delta  bool
	known  bool // the ID, the kind and the size are known
	id     plumbing.Hash
}

type onID struct {
	id    plumbing.Hash // of the base
	delta int32
}

// newPack returns a pack without an index, which closes the file.
func newPack(file *fill.Temp, o Options, size int64, b *budget) *pack {
	return &pack{file: file, size: size, budget: b, heap: &heap{temp: o.Temp, meter: o.Meter}}
}

// close removes the temporary files. It can be called twice.
func (p *pack) close() {
	if p.file != nil {
		p.file.Close()
		p.heap.close()
	}
	p.file, p.objects, p.byID, p.onBase, p.onID = nil, nil, nil, nil, nil
}

// seekable reads a file, until the context ends.
type seekable struct {
	files.ContextReader
	io.Seeker
}

// index computes the ID of each object.
func (p *pack) index(ctx context.Context, maxObjects int64) error {
	section := io.NewSectionReader(p.file, 0, p.size)
	p.scanner = packfile.NewScanner(seekable{files.ContextReader{Context: ctx, Reader: section}, section})
	// 1. Read each object once.
	_, count, err := p.scanner.Header()
	switch {
	case err != nil:
		return err
	case int64(count) > maxObjects:
		return hint.Wrap(refuse("it has %d objects, which is more than %d", count, maxObjects), helpHistory)
	case int64(count)*9 > p.size: // a header and an empty zlib stream
		return fmt.Errorf("it has %d bytes for %d objects", p.size, count)
	}
	p.objects = make([]object, 0, count)
	for range count {
		if err := p.scan(); err != nil {
			return err
		}
	}
	if _, err := p.scanner.Checksum(); err != nil {
		return err
	}
	// 2. Apply the deltas.
	slices.SortFunc(p.onBase, func(a, b int32) int { return cmp.Compare(p.objects[a].base, p.objects[b].base) })
	slices.SortFunc(p.onID, func(a, b onID) int { return bytes.Compare(a.id[:], b.id[:]) })
	for i := range p.objects {
		if !p.objects[i].delta {
			if err := p.resolve(ctx, int32(i)); err != nil {
				return err
			}
		}
	}
	if i := slices.IndexFunc(p.objects, func(o object) bool { return !o.known }); i >= 0 {
		return fmt.Errorf("the object at %d is the delta of an object that is missing", p.objects[i].offset)
	}
	p.onBase, p.onID = nil, nil
	// 3. Sort the IDs.
	p.byID = make([]int32, len(p.objects))
	for i := range p.byID {
		p.byID[i] = int32(i)
	}
	slices.SortFunc(p.byID, func(a, b int32) int { return bytes.Compare(p.objects[a].id[:], p.objects[b].id[:]) })
	return nil
}

// scan reads the next object.
func (p *pack) scan() error {
	h, err := p.scanner.NextObjectHeader()
	if err != nil {
		return err
	}
	if err := p.budget.spend(objectWork + h.Length); err != nil {
		return err
	}
	index := int32(len(p.objects))
	o := object{offset: h.Offset, size: h.Length, kind: h.Type}
	var sum io.Writer = io.Discard
	hasher := plumbing.Hasher{}
	switch {
	case h.Type == plumbing.OFSDeltaObject:
		base, found := slices.BinarySearchFunc(p.objects, h.OffsetReference, func(o object, at int64) int { return cmp.Compare(o.offset, at) })
		if !found {
			return fmt.Errorf("no object is at %d, where the base of a delta should be", h.OffsetReference)
		}
		o.delta, o.base = true, int32(base)
		p.onBase = append(p.onBase, index)
	case h.Type == plumbing.REFDeltaObject:
		o.delta = true
		p.onID = append(p.onID, onID{h.Reference, index})
	case h.Type >= plumbing.CommitObject && h.Type <= plumbing.TagObject:
		hasher = plumbing.NewHasher(h.Type, h.Length)
		sum = hasher
	default:
		return fmt.Errorf("the object at %d has the unknown type %d", h.Offset, h.Type)
	}
	n, _, err := p.scanner.NextObject(sum)
	switch {
	case err != nil:
		return err
	case n != h.Length:
		return fmt.Errorf("the object at %d has %d bytes instead of %d", h.Offset, n, h.Length)
	case !o.delta:
		o.id, o.known = hasher.Sum(), true
	}
	p.objects = append(p.objects, o)
	return nil
}

// deltas returns the deltas whose base is an object.
func (p *pack) deltas(base int32) []int32 {
	at := func(i int32) int {
		return sort.Search(len(p.onBase), func(k int) bool { return p.objects[p.onBase[k]].base >= i })
	}
	byOffset := p.onBase[at(base):at(base+1)]
	id := p.objects[base].id
	from, _ := slices.BinarySearchFunc(p.onID, id, func(o onID, id plumbing.Hash) int { return bytes.Compare(o.id[:], id[:]) })
	to := from
	for to < len(p.onID) && p.onID[to].id == id {
		to++
	}
	if from == to {
		return byOffset
	}
	out := slices.Clone(byOffset)
	for _, o := range p.onID[from:to] {
		if !p.objects[o.delta].known { // a pack can contain an object twice
			p.objects[o.delta].base = base
			out = append(out, o.delta)
		}
	}
	return out
}

// resolve computes the IDs of all deltas on an object, and of the deltas on these.
func (p *pack) resolve(ctx context.Context, root int32) error {
	type frame struct {
		content content
		deltas  []int32
	}
	deltas := p.deltas(root)
	if len(deltas) == 0 {
		return nil
	}
	defer p.heap.reset()
	base, err := p.inflate(root)
	if err != nil {
		return err
	}
	stack := []frame{{base, deltas}}
	for len(stack) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		top := &stack[len(stack)-1]
		if len(top.deltas) == 0 {
			p.heap.free(top.content)
			stack = stack[:len(stack)-1]
			continue
		}
		next := top.deltas[0]
		top.deltas = top.deltas[1:]
		o := &p.objects[next]
		if o.known {
			continue
		}
		hasher, result, err := p.apply(top.content, next, p.objects[p.objects[next].base].kind)
		if err != nil {
			return err
		}
		o.kind, o.size = p.objects[o.base].kind, result.size
		o.id, o.known = hasher.Sum(), true
		deltas := p.deltas(next)
		switch {
		case len(deltas) == 0:
			p.heap.free(result)
		case len(stack) == maxChain:
			return fmt.Errorf("more than %d deltas are applied to each other", maxChain)
		default:
			stack = append(stack, frame{result, deltas})
		}
	}
	return nil
}

// inflate returns the content of an object that is no delta.
func (p *pack) inflate(index int32) (content, error) {
	o := p.objects[index]
	if err := p.budget.spend(objectWork + o.size); err != nil {
		return content{}, err
	}
	out := p.heap.allocate(o.size)
	if err := p.copyBase(index, out); err != nil {
		return content{}, err
	}
	return out.done()
}

// copyBase writes an object that is no delta.
func (p *pack) copyBase(index int32, to io.Writer) error {
	o := p.objects[index]
	if _, err := p.scanner.SeekObjectHeader(o.offset); err != nil {
		return err
	}
	n, _, err := p.scanner.NextObject(to)
	if err == nil && n != o.size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// apply applies a delta to its base.
func (p *pack) apply(base content, index int32, kind plumbing.ObjectType) (plumbing.Hasher, content, error) {
	h, err := p.scanner.SeekObjectHeader(p.objects[index].offset)
	if err != nil {
		return plumbing.Hasher{}, content{}, err
	}
	if err := p.budget.spend(objectWork + h.Length); err != nil {
		return plumbing.Hasher{}, content{}, err
	}
	in, err := p.scanner.ReadObject()
	if err != nil {
		return plumbing.Hasher{}, content{}, err
	}
	defer in.Close()
	d, err := newDelta(in, base, p.budget)
	if err != nil {
		return plumbing.Hasher{}, content{}, err
	}
	hasher := plumbing.NewHasher(kind, d.size)
	out := p.heap.allocate(d.size)
	if err := d.write(io.MultiWriter(hasher, out)); err != nil {
		return plumbing.Hasher{}, content{}, err
	}
	result, err := out.done()
	return hasher, result, err
}

// find returns the index of an object.
func (p *pack) find(id plumbing.Hash) (int32, bool) {
	k, found := slices.BinarySearchFunc(p.byID, id, func(i int32, id plumbing.Hash) int { return bytes.Compare(p.objects[i].id[:], id[:]) })
	if !found {
		return 0, false
	}
	return p.byID[k], true
}

// get returns the index of an object of a kind.
func (p *pack) get(id plumbing.Hash, kind plumbing.ObjectType) (int32, error) {
	i, found := p.find(id)
	if !found {
		return 0, hint.Wrap(fmt.Errorf("the server did not send the %s %s", kind, id), "is the repository complete?")
	}
	if p.objects[i].kind != kind {
		return 0, refuse("%s is a %s, and not a %s", id, p.objects[i].kind, kind)
	}
	return i, nil
}

// copy writes an object.
func (p *pack) copy(index int32, to io.Writer) error {
	if !p.objects[index].delta {
		if err := p.budget.spend(objectWork + p.objects[index].size); err != nil {
			return err
		}
		return p.copyBase(index, to)
	}
	defer p.heap.reset()
	var chain []int32
	for ; p.objects[index].delta; index = p.objects[index].base {
		chain = append(chain, index)
	}
	at, err := p.inflate(index)
	if err != nil {
		return err
	}
	for _, index := range slices.Backward(chain) {
		_, next, err := p.apply(at, index, p.objects[index].kind)
		if err != nil {
			return err
		}
		p.heap.free(at)
		at = next
	}
	_, err = io.Copy(to, io.NewSectionReader(at, 0, at.size))
	return err
}

// read returns a whole object of at most a number of bytes.
func (p *pack) read(index int32, most int64) ([]byte, error) {
	o := p.objects[index]
	if o.size > most {
		return nil, refuseFile("the %s %s has more than %d bytes", o.kind, o.id, most)
	}
	out := bytes.NewBuffer(make([]byte, 0, o.size))
	err := p.copy(index, out)
	return out.Bytes(), err
}

// commit returns the commit of an ID, or of a tag that has the ID.
func (p *pack) commit(id plumbing.Hash) (Commit, error) {
	var out Commit
	for range maxTags {
		i, found := p.find(id)
		if !found {
			return Commit{}, hint.Wrap(fmt.Errorf("the server did not send %s", id), "is the repository complete?")
		}
		kind := p.objects[i].kind
		if kind != plumbing.CommitObject && kind != plumbing.TagObject {
			return Commit{}, hint.Wrap(fmt.Errorf("%w: %s is a %s", ErrNoRef, id, kind), helpRef)
		}
		text, err := p.read(i, maxTree)
		if err != nil {
			return Commit{}, err
		}
		field := "tree "
		if kind == plumbing.TagObject {
			field = "object "
		}
		if len(text) < len(field)+41 || string(text[:len(field)]) != field || text[len(field)+40] != '\n' || !plumbing.IsHash(string(text[len(field):len(field)+40])) {
			return Commit{}, refuse("the %s %s is malformed", kind, id)
		}
		to := plumbing.NewHash(string(text[len(field) : len(field)+40]))
		if kind == plumbing.CommitObject {
			out.Commit, out.Tree = id.String(), to.String()
			return out, nil
		}
		if out.TagObject == "" {
			out.TagObject = id.String()
		}
		id = to
	}
	return Commit{}, refuse("more than %d tags name each other", maxTags)
}

// complete returns the commit or tag of an abbreviated ID.
func (p *pack) complete(w *wanted) (plumbing.Hash, error) {
	var found []plumbing.Hash
	for _, i := range p.byID {
		o := p.objects[i]
		isCommit := o.kind == plumbing.CommitObject || o.kind == plumbing.TagObject
		if isCommit && o.id.String()[:len(w.abbreviated)] == w.abbreviated && !slices.Contains(found, o.id) {
			found = append(found, o.id)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return plumbing.ZeroHash, hint.Wrap(fmt.Errorf("%w: %d commits begin with %s", ErrNoRef, len(found), w.abbreviated), "name the full commit")
	case w.otherwise != nil:
		return w.otherwise.id, nil
	}
	return plumbing.ZeroHash, hint.Wrap(fmt.Errorf("%w: %s", ErrNoRef, w.abbreviated), helpRef)
}

var errDelta = errors.New("a delta is malformed")
