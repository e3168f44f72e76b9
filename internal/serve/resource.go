package serve

import (
	"io"
	"sync"
)

// pool has the resources that sites share while one replaces the other, such as the cache
// of a folder. The zero value is empty.
type pool struct {
	mu   sync.Mutex
	open map[any]*pooled
}

// pooled is a resource with the number of its users.
type pooled struct {
	io.Closer
	users int
}

// share returns the resource that is open under a key, which may be any comparable value,
// or else opens it. The caller calls release once. The last user closes the resource.
func share[T io.Closer](p *pool, key any, open func() (T, error)) (shared T, release func() error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.open[key]
	if found == nil {
		if shared, err = open(); err != nil {
			return shared, nil, err
		}
		if p.open == nil {
			p.open = map[any]*pooled{}
		}
		found = &pooled{Closer: shared}
		p.open[key] = found
	}
	found.users++
	return found.Closer.(T), func() error { return p.release(key) }, nil
}

// release ends the use of a resource by one user.
func (p *pool) release(key any) error {
	p.mu.Lock()
	used := p.open[key]
	used.users--
	if used.users > 0 {
		p.mu.Unlock()
		return nil
	}
	delete(p.open, key)
	p.mu.Unlock()
	return used.Close()
}
