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

// TagLister calls fn with each page of the repository's list of tags, starting after the tag
// that the parameter last names. oras-go's remote.Repository implements it.
type TagLister interface {
	Tags(ctx context.Context, last string, fn func(tags []string) error) error
}

// ErrTagsBrokeOff means that the first page of a list of tags was read, but a later page
// failed. The repository therefore exists, even if the later page failed with a 404.
var ErrTagsBrokeOff = errors.New("the list of tags breaks off")

// MaxTagPages is the maximum number of pages of a list of tags. Without this limit, a list
// would be endless if a registry's pages link to each other.
const MaxTagPages = 1000

// MaxTags is the maximum number of tags in a repository.
const MaxTags = 250_000

// maxName is the maximum length of a tag in bytes. Longer names in a list are not valid tags.
const maxName = 128

// ListTags does not retry a page that failed with one of these errors.
var (
	errTooManyTags  = fmt.Errorf("more than %d tags: %w", MaxTags, errdef.ErrTooManyPages)
	errTooManyPages = fmt.Errorf("more than %d pages of tags: %w", MaxTagPages, errdef.ErrTooManyPages)
)

// ListTags returns all tags of a repository, in the registry's order. It omits names that
// are not valid tags.
//
// Some registries link to a next page that does not exist, or that is on a different host.
// One such registry is Artifactory behind a proxy if the path contains the repository.
// ListTags then requests the tags after the last tag of the previous page. The distribution
// specification allows this request. If the request fails too, the error wraps
// ErrTagsBrokeOff and the cause. If the first page fails, ListTags returns the error
// unchanged.
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

// ListAnyTags is like [ListTags], but returns no tags and no error if the repository does not
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
	cause error // why ListTags requested the latest page with last as its start; nil if ListTags followed a link
}

// page adds one page to the list. It returns an error if the list becomes too long, or if ListTags
// requested the page with a start and the page contains a tag of an earlier page.
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

// asksForMore reports whether err can mean that the registry's link to the next page is wrong.
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
