package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"sync"
)

const (
	downloads   = 64
	allowedPeak = 128 << 20
)

// memory measures the peak resident memory of a gateway. The gateway first answers a request for every document
// of a large catalog. It then serves 64 concurrent downloads of packages.
func (b *bench) memory() error {
	fake, gateway, process, stop, err := b.startCatalogGateway()
	if err != nil {
		return err
	}
	defer stop()
	if err := b.askAll(gateway); err != nil {
		return err
	}
	afterCatalog, err := highWater(process.PID())
	if err != nil {
		return err
	}
	if err := b.downloadAll(gateway, fake); err != nil {
		return err
	}
	peak, err := highWater(process.PID())
	if err != nil {
		return err
	}
	b.say("peak resident memory: %d MiB with the catalog, %d MiB after the downloads", afterCatalog>>20, peak>>20)
	b.rows = append(b.rows, row{
		what:   fmt.Sprintf("memory: %d downloads of 150 MB, %d x %d versions", downloads, catalogProviders, catalogVersions),
		figure: fmt.Sprintf("%d MiB", peak>>20), ratio: float64(peak) / allowedPeak, than: "128 MiB", wanted: "< 1.00", reached: peak < allowedPeak,
	})
	return nil
}

// askAll requests every document of the catalog once. It uses several connections.
func (b *bench) askAll(gateway *server) error {
	providers := make(chan int)
	var all sync.WaitGroup
	errs := make([]error, clientsAtOnce)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	for i := range clientsAtOnce {
		all.Go(func() {
			c := b.connect(true)
			defer c.close()
			for p := range providers {
				if errs[i] = c.askProvider(ctx, gateway.url+"/"+catalogProvider(p).Path()); errs[i] != nil {
					cancel()
					return
				}
			}
		})
	}
feed:
	for p := range catalogProviders {
		select {
		case providers <- p:
		case <-ctx.Done():
			break feed
		}
	}
	close(providers)
	all.Wait()
	return errors.Join(errs...)
}

func (c *client) askProvider(ctx context.Context, url string) error {
	_, err := c.get(ctx, url+"/index.json", io.Discard)
	for v := 0; v < catalogVersions && err == nil; v++ {
		_, err = c.get(ctx, url+"/"+catalogVersion(v).String()+".json", io.Discard)
	}
	return err
}

// downloadAll downloads packages that the gateway has not cached. Each download has its own connection. After
// its first bytes, each download waits until all downloads have started.
func (b *bench) downloadAll(gateway *server, fake *fakeRegistry) error {
	var begun, all sync.WaitGroup
	begun.Add(downloads)
	errs := make([]error, downloads)
	for i := range downloads {
		all.Go(func() {
			c := b.connect(true)
			defer c.close()
			c.buf = make([]byte, 64<<10)
			once := sync.OnceFunc(func() { begun.Done(); begun.Wait() })
			defer once()
			url := gateway.url + "/" + fake.bigPath(i%len(fake.big))
			_, errs[i] = c.get(b.ctx, url, writerFunc(func(p []byte) (int, error) { once(); return len(p), nil }))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var vmHWM = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// highWater returns the peak resident memory of a running process, in bytes.
func highWater(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("the peak memory of a process is not to be had here: %w", err)
	}
	m := vmHWM.FindSubmatch(status)
	if m == nil {
		return 0, fmt.Errorf("no VmHWM in %s", status)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	return kib << 10, err
}
