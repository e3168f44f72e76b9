package main

import (
	"context"
	"errors"
	"testing"
)

// TestPromptIsInterrupted shows that an interrupt ends the wait for a prompt's answer.
func TestPromptIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	reading, answer := make(chan struct{}), make(chan struct{})
	defer close(answer)
	go func() {
		<-reading
		interrupt()
	}()
	_, err := within(ctx, func() (string, error) {
		close(reading)
		<-answer
		return "too late", nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
