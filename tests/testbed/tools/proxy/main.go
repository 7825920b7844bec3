// Command proxy is a forward proxy on loopback, github.com/elazarl/goproxy, for tests of HTTPS_PROXY, NO_PROXY and
// proxy-url. Names of clusters do not resolve here, so it connects to the same port of 127.0.0.1 in place of the host that
// it is asked for. It writes one line for each request: method and host.
// Its flag is -listen.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/elazarl/goproxy"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	proxy := goproxy.NewProxyHttpServer()
	dial := func(network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return net.DialTimeout(network, net.JoinHostPort("127.0.0.1", port), 10*time.Second)
	}
	proxy.ConnectDial = dial
	proxy.Tr = &http.Transport{Dial: dial}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.Host)
		proxy.ServeHTTP(w, r)
	})
	server := &http.Server{Addr: *listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
