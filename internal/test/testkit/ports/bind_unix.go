//go:build unix

package ports

import (
	"net/netip"
	"os"
	"syscall"
)

// bind binds a socket to an IPv4 address, but does not listen there.
func bind(at netip.AddrPort) (release func(), err error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	release = func() { _ = syscall.Close(fd) }
	// Without this option, bind fails while connections of the previous listener are closing.
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	if err != nil {
		release()
		return nil, os.NewSyscallError("bind", err)
	}
	return release, nil
}
