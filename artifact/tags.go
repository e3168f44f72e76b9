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

// ErrTagsBrokeOff means that the first page of a list of tags was read, and that a later
// page failed. The repository exists, even if the cause of the error is a 404.
var ErrTagsBrokeOff = errors.New("the list of tags breaks off")

// MaxTagPages is the maximum number of pages of a list of tags. Without a limit, the list
// would be endless if a registry's pages link to each other.
const MaxTagPages = 1000

// MaxTags is the maximum number of tags in a repository.
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

// ListAnyTags is [ListTags], but returns no tags and no error if the repository does not
// exist.
func ListAnyTags(ctx context.Context, store TagLister) ([]ociaddr.Tag, error) {
	tags, err := ListTags(ctx, store)
	var answer *errcode.ErrorResponse
	absent := errors.Is(err, errdef.ErrNotFound) || errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
	if absent && !errors.Is(err, ErrTagsBrokeOff) {
		return nil, nil
	}
	return tags, err
}

// tagList is the part of a list of tags that has been read so far.
type tagList struct {
	tags  []ociaddr.Tag
	seen  map[string]bool
	last  string // the last tag of the latest page that contained tags
	pages int
	read  int
	cause error // why the latest page was requested by its start, last; nil if it was linked to
}

// page adds one page to the list. It returns an error if the list becomes too long, or if
// the page contains tags that were read before.
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

// asksForMore reports whether a page may have failed because the registry's link to the
// page is wrong.
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
