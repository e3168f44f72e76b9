package files

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// extents is the structure DUPLICATE_EXTENTS_DATA of Windows: a part of a file that another file shares.
type extents struct {
	file            windows.Handle
	from, to, bytes int64
}

// maxExtents is the number of bytes that are shared at once. Windows allows less than 4 GiB.
const maxExtents = 1 << 30

// clone needs ReFS, whose clusters have 4 or 64 KiB. Only whole clusters can be shared.
func clone(from *os.File, to string, mode os.FileMode) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err = f.Truncate(info.Size()); err == nil {
		if err = share(f, from, info.Size(), 4<<10); err != nil {
			err = share(f, from, info.Size(), 64<<10)
		}
	}
	if cerr := f.Close(); err == nil {
		return cerr
	}
	return errors.Join(errors.ErrUnsupported, os.Remove(to))
}

// share makes a file share all bytes of another one. The last cluster can extend beyond the end.
func share(f, from *os.File, size, cluster int64) error {
	for at := int64(0); at < size; at += maxExtents {
		part := extents{file: windows.Handle(from.Fd()), from: at, to: at, bytes: min((size-at+cluster-1)/cluster*cluster, maxExtents)}
		var returned uint32
		err := windows.DeviceIoControl(windows.Handle(f.Fd()), windows.FSCTL_DUPLICATE_EXTENTS_TO_FILE, (*byte)(unsafe.Pointer(&part)), uint32(unsafe.Sizeof(part)), nil, 0, &returned, nil)
		if err != nil {
			return err
		}
	}
	return nil
}
