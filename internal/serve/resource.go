package serve

import (
	"io"
	"sync"
	"sync/atomic"
)

// resource has several users, and is closed by the last of them.
type resource struct {
	users atomic.Int64
	close func() error
}

// hold begins the use by the first user.
func (r *resource) hold(close func() error) {
	r.close = close
	r.users.Store(1)
}

// acquire adds a user. It fails once the last user has released the resource.
func (r *resource) acquire() bool {
	for {
		n := r.users.Load()
		if n == 0 {
			return false
		}
		if r.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends the use by one user. It closes the resource after the last one.
func (r *resource) release() error {
	if r.users.Add(-1) > 0 {
		return nil
	}
	return r.close()
}

// pool has the resources that sites share while one replaces the other, such as the cache
// of a folder. The zero value is empty.
type pool struct {
	mu   sync.Mutex
	open map[any]*pooled
}

type pooled struct {
	resource
	value io.Closer
}

// share returns the resource that is open under a key, which may be any comparable value,
// or else opens it. The caller calls release once.
func share[T io.Closer](p *pool, key any, open func() (T, error)) (shared T, release func() error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.open[key]; found != nil && found.acquire() {
		return found.value.(T), found.release, nil
	}
	if shared, err = open(); err != nil {
		return shared, nil, err
	}
	opened := &pooled{value: shared}
	opened.hold(func() error {
		p.forget(key, opened)
		return shared.Close()
	})
	if p.open == nil {
		p.open = map[any]*pooled{}
	}
	p.open[key] = opened
	return shared, opened.release, nil
}

func (p *pool) forget(key any, closed *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[key] == closed {
		delete(p.open, key)
	}
}
