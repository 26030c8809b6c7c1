package operate

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
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"holdfast/proxy/client"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/serve"
	"holdfast/proxy/internal/web/page"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

func (a *app) webCommand() *cobra.Command {
	noOpen, out := false, false
	cmd := a.JSONFlag(&cobra.Command{
		Use:   "web",
		Short: "Open the web page in a browser, or print a link to it",
		Long: "Open the web page of the running proxy in a browser. The link is valid once, for\n" +
			"30 seconds; the browser stays signed in for a week after its last visit. If no\n" +
			"browser can be opened, the link is printed.\n\n" +
			"Other users of the machine can read a browser's command line, so the browser is given\n" +
			"a file of mode 0600 that leads to the page. A browser in a sandbox that cannot read the\n" +
			"runtime directory (snap, flatpak) shows an error: open the link of --no-open instead.\n\n" +
			"--sign-out closes the connections of all browsers, and signs them out. Links of proxy\n" +
			"share stay valid.\n\n" +
			"If the proxy serves no page, another proxy that does takes over from it, on a free port\n" +
			"of 127.0.0.1; clients do not notice. The page stays at that address, even if a proxy dies,\n" +
			"until proxy stop. To serve the page always, set web in the settings (HOLDFAST_WEB).\n\n" +
			"A program that was built without the page cannot serve it: web reports that and exits\n" +
			"with 69. scripts/web builds the page from source.",
		Example: "  proxy web\n  proxy web --no-open\n  proxy web --sign-out",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out {
				return a.signOut(cmd)
			}
			return a.WithStarted(cmd.Context(), func(c *client.Client) error {
				l, err := pageLink(cmd.Context(), c)
				if errors.Is(err, errNoPage) && a.Proxy == config.DefaultProxy && !pipe.Here {
					if page.Files() == nil {
						return errNotBuilt
					}
					cli.Warn("this proxy serves no page: another proxy that serves it takes over")
					if err := a.HandOff(cmd.Context(), anyPort); err != nil {
						return err
					}
					l, err = pageLink(cmd.Context(), c)
				}
				if err != nil {
					return err
				}
				if !noOpen {
					dirs, err := a.Dirs()
					if err != nil {
						return err
					}
					if l.Opened, err = openPage(cmd.Context(), dirs, l); err != nil {
						return err
					}
				}
				return a.Print(cmd, l, l.print)
			})
		},
	})
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "print the link, and open no browser")
	cmd.Flags().BoolVar(&out, "sign-out", false, "sign out all browsers")
	cmd.MarkFlagsMutuallyExclusive("no-open", "sign-out")
	return cmd
}

// anyPort is the address of the page if no address was set.
const anyPort = "127.0.0.1:0"

// errNoPage tells that the proxy has no web address.
var errNoPage error = exitcode.New(sysexits.Unavailable, "this proxy serves no web page: set web in the settings (HOLDFAST_WEB), then proxy --handoff; or proxy web")

// errNotBuilt tells that the proxy's program has no files of the page.
var errNotBuilt error = exitcode.New(sysexits.Unavailable, "the proxy was built without the web page: in its sources run scripts/web, which needs Node and npm, then go build, then proxy --handoff; a release has the page built in")

// builtTimeout is how long the proxy may take to answer whether it has the page. It reads no file
// for that answer.
const builtTimeout = 2 * time.Second

// checkBuilt returns errNotBuilt if the proxy that listens at address answers 501, because its
// program has no files of the page. That program may differ from this one. If there is no answer,
// checkBuilt returns nil: the browser will show the error.
func checkBuilt(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, builtTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+address+"/", nil)
	if err != nil {
		return fmt.Errorf("ask for the page: %w", err)
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r) // a proxy of HTTP_PROXY must not be used
	if err != nil {
		return nil
	}
	_ = answer.Body.Close()
	if answer.StatusCode == http.StatusNotImplemented {
		return errNotBuilt
	}
	return nil
}

// A webLink signs a browser in once.
type webLink struct {
	URL     string `json:"url"`
	Opened  bool   `json:"opened"` // a browser has used the link
	address string
	ticket  string
}

// print prints the link, or the address that was opened.
func (l *webLink) print(out io.Writer) error {
	text := l.URL
	if l.Opened {
		text = "opened " + l.address
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// pageLink returns a link to the page with a new ticket.
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
	return &webLink{URL: serve.PageURL(s.Web, ticket), address: "http://" + s.Web + "/", ticket: ticket}, nil
}

const (
	openPoll = 20 * time.Millisecond
	// openLife is how long the file exists: as long as the ticket is valid.
	openLife = 30 * time.Second
)

// openPage opens the page in a browser, by a file that only this user can read, because every user
// can read a command line with the name of the file. It returns when the browser has signed in, or
// when the ticket has expired; the file is removed in both cases. It returns false if no browser
// could be started.
func openPage(ctx context.Context, dirs config.Dirs, l *webLink) (opened bool, err error) {
	path := serve.OpenFile(dirs, l.ticket)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(path) }() // the proxy may already have removed it
	_, err = fmt.Fprintf(f, "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"+
		"<meta http-equiv=\"refresh\" content=\"0;url=%s\">\n<title>Holdfast</title>\n<a href=\"%[1]s\">Continue to Holdfast</a>\n", html.EscapeString(l.URL))
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
			return false, exitcode.New(sysexits.Unavailable, "a browser was started, but has not signed in within 30 s; proxy web --no-open prints a link")
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(openPoll):
		}
	}
}

// signOut signs all browsers out.
func (a *app) signOut(cmd *cobra.Command) error {
	dirs, err := a.Dirs()
	if err != nil {
		return err
	}
	err = handoff.SignOut(cmd.Context(), dirs.Socket(config.ControlSocket(a.Proxy)))
	switch {
	case socket.IsAbsent(err): // without this, the next proxy would accept the cookies again
		if err := serve.SignOut(dirs, a.Proxy, time.Now()); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "all browsers are signed out")
	return err
}

// openTime is how long a program that opens browsers may take to report a failure.
const openTime = 2 * time.Second

// openBrowser reports whether a browser was probably started.
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
	case <-time.After(openTime): // the program may be the browser itself
		return true
	}
}
