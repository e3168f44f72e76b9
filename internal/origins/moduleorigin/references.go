package moduleorigin

import (
	"context"
	"slices"
	"sync"

	"github.com/ocibridge/ocibridge/internal/origins/gitfiles"
)

// maxReferences is the maximum number of lists of references that are kept. Two are enough for a module whose repository has
// moved.
const maxReferences = 2

// References holds the references of repositories, as they were when they were read, or the errors of reading them. Most versions
// of a module are tags of one repository, so a command reads them once. It is safe for concurrent use, and must not outlive the
// command. A nil *References holds nothing.
type References struct {
	lock  sync.Mutex
	lists []*references // those that were begun last
}

// references are those of one repository.
type references struct {
	url   string
	read  chan struct{} // closed when the other fields are valid
	refs  *gitfiles.Refs
	err   error
	ended bool // the caller that read them gave up, so err says nothing about the server
}

// of returns the references of a repository. It calls read unless they are known. Further callers wait for the first.
func (r *References) of(ctx context.Context, url string, read func(context.Context) (*gitfiles.Refs, error)) (*gitfiles.Refs, error) {
	if r == nil {
		return read(ctx)
	}
	for {
		l, known := r.list(url)
		if !known {
			l.refs, l.err = read(ctx)
			if l.ended = l.err != nil && ctx.Err() != nil; l.ended {
				r.remove(l)
			}
			close(l.read)
			return l.refs, l.err
		}
		select {
		case <-l.read:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !l.ended {
			return l.refs, l.err
		}
	}
}

// list returns the list of a repository, and whether another caller has added it.
func (r *References) list(url string) (l *references, known bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if i := slices.IndexFunc(r.lists, func(l *references) bool { return l.url == url }); i >= 0 {
		return r.lists[i], true
	}
	if len(r.lists) == maxReferences {
		r.lists = slices.Delete(r.lists, 0, 1)
	}
	l = &references{url: url, read: make(chan struct{})}
	r.lists = append(r.lists, l)
	return l, false
}

func (r *References) remove(l *references) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.lists = slices.DeleteFunc(r.lists, func(other *references) bool { return other == l })
}
