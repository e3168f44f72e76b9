package artifact

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// TagLister lists the tags of a repository page by page, starting after last. oras-go's
// remote.Repository implements it.
type TagLister interface {
	Tags(ctx context.Context, last string, fn func(tags []string) error) error
}

// ErrTagsBrokeOff means that a list of tags began, and that a later page failed. Whatever
// the cause is, it never means that the repository is absent.
var ErrTagsBrokeOff = errors.New("the list of tags breaks off")

// MaxTagPages bounds the number of pages of tags. The pages of a registry may link to each
// other, which would make the list endless.
const MaxTagPages = 1000

// MaxTags bounds the number of tags in a repository.
const MaxTags = 250_000

// maxName is the maximum length of a tag in bytes. Longer names in a list are ignored.
const maxName = 128

// After these errors, ListTags does not retry the page.
var (
	errTooManyTags  = fmt.Errorf("more than %d tags: %w", MaxTags, errdef.ErrTooManyPages)
	errTooManyPages = fmt.Errorf("more than %d pages of tags: %w", MaxTagPages, errdef.ErrTooManyPages)
)

// ListTags returns all tags of a repository in the registry's order. It omits names that
// are not valid tags.
//
// Some registries link to a next page that does not exist, or to a different host
// (Artifactory behind a proxy, with the repository in the path). ListTags then requests
// the tags after the last tag of the previous page, as the distribution specification
// allows. If that fails too, the error wraps ErrTagsBrokeOff and the cause. An error for
// the first page is returned unchanged.
func ListTags(ctx context.Context, store TagLister) ([]ociaddr.Tag, error) {
	l := &tagList{seen: map[string]bool{}}
	for {
		before, last := l.pages, l.last
		err := store.Tags(ctx, last, l.page)
		switch {
		case err == nil:
			return l.tags, nil
		case l.pages == 0:
			return nil, err
		case l.pages > before && l.last != last && asksForMore(ctx, err):
			l.cause = err
			continue
		case l.cause != nil && !errors.Is(err, errdef.ErrTooManyPages):
			err = l.cause // the broken link, which an administrator can fix
		}
		return nil, fmt.Errorf("%w after %d pages: %w", ErrTagsBrokeOff, l.pages, err)
	}
}

// ListAnyTags is [ListTags] for a repository that may not exist: it then has no tags.
func ListAnyTags(ctx context.Context, store TagLister) ([]ociaddr.Tag, error) {
	tags, err := ListTags(ctx, store)
	var answer *errcode.ErrorResponse
	absent := errors.Is(err, errdef.ErrNotFound) || errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
	if absent && !errors.Is(err, ErrTagsBrokeOff) {
		return nil, nil
	}
	return tags, err
}

// tagList is the part of a list that has been read.
type tagList struct {
	tags  []ociaddr.Tag
	seen  map[string]bool
	last  string // the last tag of the latest page that had any
	pages int
	read  int
	cause error // the error because of which the latest request began after last
}

// page processes one page. It returns an error if the page starts the list again.
func (l *tagList) page(page []string) error {
	if l.cause != nil && slices.ContainsFunc(page, func(t string) bool { return l.seen[t] }) {
		return l.cause // the registry ignores the start that was requested
	}
	if l.pages++; l.pages > MaxTagPages {
		return errTooManyPages
	}
	if l.read += len(page); l.read > MaxTags {
		return errTooManyTags
	}
	for _, t := range page {
		if len(t) <= maxName {
			l.seen[t] = true
		}
		if tag, err := ociaddr.ParseTag(t); err == nil {
			l.tags = append(l.tags, tag)
		}
		l.last = t
	}
	return nil
}

// asksForMore reports whether the link to a page may be the reason why the page could not
// be read.
func asksForMore(ctx context.Context, err error) bool {
	var answer *errcode.ErrorResponse
	var connection *net.OpError
	switch {
	case ctx.Err() != nil, errors.Is(err, errdef.ErrTooManyPages), errors.As(err, &connection), errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case errors.As(err, &answer):
		return answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests
	}
	return true
}
