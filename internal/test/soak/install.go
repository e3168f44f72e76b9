package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// install makes tofu install versions, one after another, until ctx ends. An installation may fail during a
// fault. However, tofu must never install a wrong package, and must never report that the provider or the
// version does not exist.
func (s *soak) install(ctx context.Context, random *rand.Rand) {
	tofu, err := clients.Find("tofu")
	if err != nil {
		s.fail(err)
		return
	}
	ws, err := s.Workspace(fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n}\n", s.gateway.URL))
	if err != nil {
		s.fail(err)
		return
	}
	for pause(ctx, time.Second) {
		if err := s.installOne(ctx, ws, tofu, s.releases[random.IntN(len(s.releases))]); err != nil {
			s.fail(err)
		}
	}
}

func (s *soak) installOne(ctx context.Context, ws *clients.Workspace, tofu clients.Client, r *release.Release) error {
	if err := ws.Clean(); err != nil {
		return err
	}
	if err := ws.WriteConfig(fmt.Sprintf("terraform {\n  required_providers {\n    soaked = {\n      source  = %q\n      version = %q\n    }\n  }\n}\n", provider, r.Version)); err != nil {
		return err
	}
	out, err := ws.Command(ctx, tofu, "init", "-no-color", "-input=false").CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return nil // the time is over, so tofu was interrupted
	case err != nil && strings.Contains(string(out), "does not have a provider"), err != nil && strings.Contains(string(out), "checksum"), err != nil && strings.Contains(string(out), "is not available for"):
		return fmt.Errorf("tofu init: %w\n%s", err, out)
	case err != nil:
		s.notInstalled.Add(1)
		return nil
	}
	locked, err := ws.Lock()
	if err != nil {
		return err
	}
	if got := locked[provider]; got.Version != r.Version || !strings.Contains(strings.Join(got.Hashes, " "), "zh:"+r.Packages[0].SHA256) {
		return fmt.Errorf("tofu init has locked %+v for %s", got, r.Version)
	}
	s.installed.Add(1)
	return nil
}
