package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// notifyManager tells systemd, if it started the process and wants to know, how
// things are: assignments as in sd_notify(3).
func notifyManager(assignments ...string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(strings.Join(assignments, "\n")))
	return err
}

// monotonic is the time by the clock that systemd compares, in microseconds.
func monotonic() string {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // this clock is always there
	return strconv.FormatInt(now.Nano()/1000, 10)
}

// watchdogInterval is how often systemd wants to hear of the process; 0 for never.
func watchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}
