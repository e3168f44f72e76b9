package files

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// sameFileSystem returns true, because the folders above a folder are on the same drive. Mounted folders are rare, and
// isOwn still checks their files.
func sameFileSystem(_, _ os.FileInfo) bool { return true }

func isOwn(name string, _ os.FileInfo) (bool, error) {
	sd, err := windows.GetNamedSecurityInfo(name, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return false, err
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return false, err
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return false, err
	}
	return owner.Equals(user.User.Sid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) || owner.IsWellKnown(windows.WinLocalSystemSid), nil
}

// Free returns how many bytes are free for this user on the disk of a folder.
func Free(folder string) (int64, error) {
	name, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, err
	}
	return int64(free), nil
}

// CreateNew creates a file that only this user can read. It fails if the file exists. The file can be renamed and removed
// while it is open, as on other systems.
func CreateNew(name string) (*os.File, error) {
	const share = syscall.FILE_SHARE_READ | syscall.FILE_SHARE_WRITE | syscall.FILE_SHARE_DELETE
	h, err := openHandle(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, share, syscall.CREATE_NEW)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

// Lock does nothing, because an open file counts as locked on Windows.
func Lock(*os.File) error { return nil }

// OpenLocked opens a file, and creates it if it is missing. It fails with [ErrLocked] if another caller has it open.
func OpenLocked(name string) (*os.File, error) {
	h, err := openHandle(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, syscall.OPEN_ALWAYS)
	switch {
	case errors.Is(err, windows.ERROR_SHARING_VIOLATION):
		return nil, ErrLocked
	case err != nil:
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

// IsFull reports whether err means that a disk is full.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

// IsAbandoned reports whether no process has a file open.
func IsAbandoned(name string) bool {
	h, err := openHandle(name, syscall.GENERIC_READ, 0, syscall.OPEN_EXISTING)
	if err != nil {
		return false
	}
	return syscall.CloseHandle(h) == nil
}

func openHandle(name string, access, share, mode uint32) (syscall.Handle, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return syscall.InvalidHandle, err
	}
	return syscall.CreateFile(path, access, share, nil, mode, syscall.FILE_ATTRIBUTE_NORMAL, 0)
}
