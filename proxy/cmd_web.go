package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"holdfast/proxy/client"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/internal/web/page"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
)

func (a *app) webCommand() *cobra.Command {
	noOpen, out := false, false
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "web",
		Short: "Open the web page in a browser, or print a link to it",
		Long: "Open the web page of the running proxy in a browser. The link is good once, for\n" +
			"30 seconds; the browser stays signed in for a week after its last visit. Where no\n" +
			"browser can be opened, the link is printed.\n\n" +
			"Other users of the machine can read a browser's command line, so the browser is given\n" +
			"a file of mode 0600 that leads to the page. A browser in a sandbox that cannot read the\n" +
			"runtime directory (snap, flatpak) shows an error: open what --no-open prints.\n\n" +
			"--sign-out ends the connections of all browsers, and none is signed in any more. Links\n" +
			"of proxy share stay good.\n\n" +
			"Where the proxy serves no page, another takes over from it that does, on a port of\n" +
			"127.0.0.1 that is free; no client notices. It stays there, also when a proxy dies,\n" +
			"until proxy stop. To have it always, set web in the settings (HOLDFAST_WEB).\n\n" +
			"A program that was built without the page cannot serve it: web says so and exits\n" +
			"with 69. scripts/web builds the page from source.",
		Example: "  proxy web\n  proxy web --no-open\n  proxy web --sign-out",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out {
				return a.signOut(cmd)
			}
			return a.withStarted(cmd.Context(), func(c *client.Client) error {
				l, err := pageLink(cmd.Context(), c)
				if errors.Is(err, errNoPage) && a.proxy == config.DefaultProxy && !pipe.Here {
					if page.Files() == nil {
						return errNotBuilt
					}
					warn(errors.New("this proxy serves no page: another takes over, which does"))
					o := handoffOptions{timeout: handoff.Timeout, quiet: true, web: anyPort}
					if err := a.handoff(cmd.Context(), &o); err != nil {
						return err
					}
					l, err = pageLink(cmd.Context(), c)
				}
				if err != nil {
					return err
				}
				if !noOpen {
					if l.Opened, err = a.openPage(cmd.Context(), l); err != nil {
						return err
					}
				}
				if a.json {
					return printJSON(cmd, l)
				}
				return l.print(cmd.OutOrStdout())
			})
		},
	})
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "print the link, and open nothing")
	cmd.Flags().BoolVar(&out, "sign-out", false, "sign out all browsers")
	cmd.MarkFlagsMutuallyExclusive("no-open", "sign-out")
	return cmd
}

// anyPort is where the page is served that nobody has said a place for.
const anyPort = "127.0.0.1:0"

var errNoPage error = &exitError{exitUnavailable, "this proxy serves no web page: set web in the settings (HOLDFAST_WEB), then proxy --handoff; or proxy web"}

var errNotBuilt error = &exitError{exitUnavailable, "the proxy was built without the web page: in its sources run scripts/web, which needs Node and npm, then go build, then proxy --handoff; a release has the page built in"}

// builtTimeout is how long the proxy may take to say whether it has the page: it reads
// no file for that.
const builtTimeout = 2 * time.Second

// checkBuilt returns errNotBuilt if the proxy that listens at address answers 501: its
// program has no files of the page. It may be another program than this one. No answer is
// no error here: whoever opens the link sees more.
func checkBuilt(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, builtTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+address+"/", nil)
	if err != nil {
		return fmt.Errorf("ask for the page: %w", err)
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r) // through no HTTP_PROXY
	if err != nil {
		return nil
	}
	_ = answer.Body.Close()
	if answer.StatusCode == http.StatusNotImplemented {
		return errNotBuilt
	}
	return nil
}

// A webLink lets a browser in, once.
type webLink struct {
	URL     string `json:"url"`
	Opened  bool   `json:"opened"` // by a browser, which has used it up
	address string
	ticket  string
}

func (l *webLink) print(out io.Writer) error {
	text := l.URL
	if l.Opened {
		text = "opened " + l.address
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

func pageLink(ctx context.Context, c *client.Client) (*webLink, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	if s.Web == "" {
		return nil, errNoPage
	}
	if err := checkBuilt(ctx, s.Web); err != nil {
		return nil, err
	}
	ticket, err := c.Ticket(ctx, "")
	if err != nil {
		return nil, err
	}
	return &webLink{URL: pageURL(s.Web, ticket), address: "http://" + s.Web + "/", ticket: ticket}, nil
}

func pageURL(address, ticket string) string { return "http://" + address + "/?ticket=" + ticket }

// openFile is the file that leads a browser to the page with a ticket. Its name
// tells nothing of the ticket; the proxy removes it when the ticket is used.
func openFile(dirs config.Dirs, ticket string) string {
	return filepath.Join(dirs.Runtime, "open-"+pass.Name(ticket)+".html")
}

const (
	openPoll = 20 * time.Millisecond
	// openLife is how long the file lies there: as long as the ticket is good.
	openLife = 30 * time.Second
)

// openPage has a browser open the page, by a file that only this user reads: a
// command line, which has the file's name, is everybody's. It returns when the
// browser has signed in, or the ticket is too old; the file is gone then. It
// returns false if no browser could be started.
func (a *app) openPage(ctx context.Context, l *webLink) (opened bool, err error) {
	dirs, err := a.dirs()
	if err != nil {
		return false, err
	}
	path := openFile(dirs, l.ticket)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(path) }() // the proxy may have done so
	_, err = fmt.Fprintf(f, "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"+
		"<meta http-equiv=\"refresh\" content=\"0;url=%s\">\n<title>Holdfast</title>\n<a href=\"%[1]s\">Go on to Holdfast</a>\n", html.EscapeString(l.URL))
	if err := errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	if !openBrowser((&url.URL{Scheme: "file", Path: path}).String()) {
		return false, nil
	}
	for late := time.After(openLife); ; {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		select {
		case <-late:
			return false, &exitError{exitUnavailable, "a browser was started, and has not signed in within 30 s; proxy web --no-open prints a link"}
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(openPoll):
		}
	}
}

func (a *app) signOut(cmd *cobra.Command) error {
	dirs, err := a.dirs()
	if err != nil {
		return err
	}
	err = handoff.SignOut(cmd.Context(), dirs.Socket(config.ControlSocket(a.proxy)))
	switch {
	case nobodyListens(err): // cookies are good again with the next proxy
		if err := readSignedOut(dirs, a.proxy).set(time.Now()); err != nil {
			return err
		}
	case errors.Is(err, handoff.ErrGone):
		return &exitError{exitUnavailable, "the proxy that runs is too old to sign browsers out: replace it (proxy --handoff), then sign out"}
	case err != nil:
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "all browsers are signed out")
	return err
}

// openTime is how long a program that opens browsers may take to say that it
// cannot.
const openTime = 2 * time.Second

// openBrowser reports whether a browser shows a page, as far as that can be known.
func openBrowser(address string) bool {
	var args []string
	switch runtime.GOOS {
	case "darwin":
		args = []string{"open", address}
	case "windows":
		args = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return false
		}
		args = []string{"xdg-open", address}
	}
	cmd := exec.Command(args[0], args[1:]...)
	if cmd.Start() != nil {
		return false
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err == nil
	case <-time.After(openTime): // it may be the browser itself
		return true
	}
}

// greet says on a terminal where the page is. The link is a secret while it is good,
// so that no log gets it, nor what is no terminal: that may be a log as well.
func (s *serving) greet(out *os.File) {
	if s.listeners.tcp == nil || !isTerminal(out) {
		return
	}
	address := s.listeners.tcp.Addr().String()
	ticket, err := s.server.StartTicket()
	if err != nil {
		s.log.Warn().Err(err).Msg("no link to the page")
		return
	}
	fmt.Fprintf(out, "web page    %s\n            good once, for 10 minutes; proxy web gives another\n", pageURL(address, ticket))
}
