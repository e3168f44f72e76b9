package serve

import (
	"io"
	"sync"
)

// pool holds resources that an old site and its successor share, such as the cache in a
// folder. The zero value is an empty pool.
type pool struct {
	mu   sync.Mutex
	open map[any]*pooled
}

// pooled is a resource with the number of its users.
type pooled struct {
	io.Closer
	users int
}

// share returns the open resource with the given key, or opens it. A key can be any
// comparable value. The caller calls release once. The last release closes the resource.
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

// release ends one use of the resource with the given key. The end of the last use closes
// the resource.
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
