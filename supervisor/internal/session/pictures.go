package session

import (
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/screen"
)

// A viewer receives the bytes of a picture only if its terminal shows the picture as the session's screen
// does. For every other viewer, the bytes are covered. The picture moves the cursor of the screen, but not
// that of the viewer's terminal, so that viewer begins again with a snapshot, which has the picture in
// a form that the viewer shows, if there is one.

// pictureEvery is the shortest time between two snapshots that pictures cause, because a program may
// print many pictures.
const pictureEvery = time.Second

// pictureRenewal tells when the pictures of a session made a viewer begin again. The session's loop owns
// it.
type pictureRenewal struct {
	last      time.Time
	isPending bool // a timer runs
}

// showsPictures reports whether the viewer's terminal may show pictures of the session.
func (a *Attachment) showsPictures() bool {
	look := a.spec.Appearance
	return look != nil && (look.Pictures.Sixel || look.Pictures.ITerm2 || look.Pictures.Kitty) && a.s.display.hasPictures()
}

// hasPictures reports whether the screen shows pictures.
func (d *display) hasPictures() (ok bool) {
	if d.restoring == nil && !d.saved.Degraded {
		d.use(func() { ok = d.screen.HasPictures() })
	}
	return ok
}

// updatePictures tells the viewers which pictures they receive as the program prints them. It must be
// called after the appearance of the session or of a viewer has changed.
func (v *viewers) updatePictures(session protocol.Appearance) {
	for a := range v.attached {
		a.alike.Store(uint32(screen.PicturesAlike(a.spec.Appearance, session)))
	}
}

// renewForPictures lets viewers begin again that have not received pictures of the given formats. A viewer without an appearance
// has received all bytes, and a snapshot for it would have no pictures.
func (v *viewers) renewForPictures(printed picture.Formats, responder string) {
	for a := range v.attached {
		if a.spec.Appearance == nil || a.noOutput {
			continue
		}
		received := picture.Formats(a.alike.Load())
		if a.spec.Writer != responder {
			received &^= picture.Formats(picture.Kitty) // a command that the terminal would answer is disabled
		}
		if printed&^received == 0 {
			continue
		}
		r := &a.pictureRenewal
		switch wait := pictureEvery - time.Since(r.last); {
		case r.isPending:
		case wait <= 0:
			r.last = time.Now()
			a.requestRenewal(newSnapshot)
		default:
			r.isPending = true
			time.AfterFunc(wait, func() {
				a.s.do(func() {
					r.isPending, r.last = false, time.Now()
					a.requestRenewal(newSnapshot)
				})
			})
		}
	}
}
