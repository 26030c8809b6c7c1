package web

import (
	"crypto/sha1" // what RFC 6455 says; nothing here rests on it
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
)

// checkUpgrade says whether a request begins a WebSocket.
func checkUpgrade(h http.Header) error {
	key, err := base64.StdEncoding.DecodeString(h.Get("Sec-Websocket-Key"))
	switch {
	case !hasToken(h, "Connection", "upgrade") || !hasToken(h, "Upgrade", "websocket"):
		return refuse(http.StatusUpgradeRequired, protocol.CodeInvalidArgument, "this is a WebSocket")
	case h.Get("Sec-Websocket-Version") != "13":
		return refuse(http.StatusUpgradeRequired, protocol.CodeInvalidArgument, "only version 13 of the WebSocket protocol is spoken here")
	case err != nil || len(key) != 16 || len(h["Sec-Websocket-Key"]) != 1:
		return refuse(http.StatusBadRequest, protocol.CodeInvalidArgument, "Sec-WebSocket-Key must be 16 bytes in base64")
	}
	return nil
}

// hasToken reports whether a header that is a list has the token in it.
func hasToken(h http.Header, name, token string) bool {
	return slices.ContainsFunc(h[name], func(line string) bool {
		return slices.ContainsFunc(strings.Split(line, ","), func(t string) bool {
			return strings.EqualFold(strings.TrimSpace(t), token)
		})
	})
}

// upgrade answers a request that was checked. Extensions that the client
// offers are not taken: nothing is compressed.
func upgrade(r *request, subprotocol string) (*socket, error) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
	if subprotocol != "" {
		answer += "Sec-WebSocket-Protocol: " + subprotocol + "\r\n"
	}
	_ = r.nc.SetWriteDeadline(time.Now().Add(headTimeout)) // a failure shows in Write
	if _, err := r.nc.Write([]byte(answer + "\r\n")); err != nil {
		return nil, fmt.Errorf("answer a WebSocket's handshake: %w", err)
	}
	if err := r.nc.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("answer a WebSocket's handshake: %w", err)
	}
	return newSocket(r.nc, r.rest), nil
}
