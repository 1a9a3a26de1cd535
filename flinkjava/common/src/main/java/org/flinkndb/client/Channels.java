package org.flinkndb.client;

import io.grpc.CallCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NegotiationType;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.nio.NioIoHandler;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioSocketChannel;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslProvider;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;

import org.flinkndb.config.NdbOptions;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.config.ServerAddress;
import org.flinkndb.config.TlsSettings;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.net.InetAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/**
 * Makes connections to one server. Each session has one of its own: streams of one connection would
 * share its flow-control window, so a slow operator would hold up its neighbours.
 */
final class Channels {
    private static final int MAX_MESSAGE_BYTES = Integer.MAX_VALUE;
    private static final int WINDOW_BYTES = 4 << 20;
    private static final long SHUTDOWN_SECONDS = 5;

    private Channels() {}

    /** A channel and the one thread that serves it. */
    static final class Connection {
        private final ManagedChannel channel;
        private final EventLoopGroup loop;

        private Connection(ManagedChannel channel, EventLoopGroup loop) {
            this.channel = channel;
            this.loop = loop;
        }

        ManagedChannel channel() {
            return channel;
        }

        /** Ends it without waiting. */
        void close() {
            channel.shutdownNow();
            loop.shutdownGracefully(0, SHUTDOWN_SECONDS, TimeUnit.SECONDS);
        }
    }

    static Connection connect(NdbSettings settings, ServerAddress address) throws IOException {
        EventLoopGroup loop =
                new MultiThreadIoEventLoopGroup(
                        1,
                        new DefaultThreadFactory("flinkndb-io", true),
                        NioIoHandler.newFactory());
        try {
            NettyChannelBuilder builder =
                    address.isUnix() ? unix(address) : tcp(address, settings.tls());
            builder.eventLoopGroup(loop)
                    .directExecutor()
                    .maxInboundMessageSize(MAX_MESSAGE_BYTES)
                    .flowControlWindow(WINDOW_BYTES)
                    .keepAliveTime(20, TimeUnit.SECONDS)
                    .keepAliveTimeout(10, TimeUnit.SECONDS)
                    .disableRetry();
            return new Connection(builder.build(), loop);
        } catch (IOException | RuntimeException e) {
            loop.shutdownGracefully(0, SHUTDOWN_SECONDS, TimeUnit.SECONDS);
            throw e;
        }
    }

    private static NettyChannelBuilder unix(ServerAddress address) throws IOException {
        return NettyChannelBuilder.forAddress(unixAddress(address.socketPath()))
                .channelType(NioDomainSocketChannel.class)
                // gRPC sets this for every kind of socket; these do not have it, and Netty would
                // warn.
                .withOption(ChannelOption.SO_KEEPALIVE, null)
                .overrideAuthority("localhost")
                .negotiationType(NegotiationType.PLAINTEXT);
    }

    /** Java 16 brought this address type; the shim is compiled for Java 11. */
    private static SocketAddress unixAddress(String path) throws IOException {
        try {
            return (SocketAddress)
                    Class.forName("java.net.UnixDomainSocketAddress")
                            .getMethod("of", String.class)
                            .invoke(null, path);
        } catch (ClassNotFoundException e) {
            throw new IOException(
                    NdbOptions.ADDRESS.key()
                            + ": unix:// needs Java 16 or newer, this is Java "
                            + System.getProperty("java.version")
                            + ": use host:port",
                    e);
        } catch (NoSuchMethodException | IllegalAccessException | InvocationTargetException e) {
            throw new IOException("cannot make the address of the socket " + path, e);
        }
    }

    private static NettyChannelBuilder tcp(ServerAddress address, TlsSettings tls)
            throws IOException {
        NettyChannelBuilder builder =
                NettyChannelBuilder.forAddress(address.host(), address.port())
                        .channelType(NioSocketChannel.class);
        if (tls.enabled()) {
            return builder.negotiationType(NegotiationType.TLS).sslContext(sslContext(tls).build());
        }
        if (!InetAddress.getByName(address.host()).isLoopbackAddress()) {
            throw new IOException(
                    NdbOptions.ADDRESS.key()
                            + ": "
                            + address
                            + " is not on this host, so "
                            + NdbOptions.TLS.key()
                            + " must be true");
        }
        return builder.negotiationType(NegotiationType.PLAINTEXT);
    }

    private static SslContextBuilder sslContext(TlsSettings tls) throws IOException {
        try {
            SslContextBuilder ssl = SslContextBuilder.forClient();
            if (tls.ca() != null) {
                ssl.trustManager(new File(tls.ca()));
            }
            if (tls.cert() != null) {
                ssl.keyManager(new File(tls.cert()), new File(tls.key()));
            }
            return GrpcSslContexts.configure(ssl, SslProvider.JDK);
        } catch (IllegalArgumentException e) {
            throw new IOException(
                    NdbOptions.TLS_CA.key()
                            + ", "
                            + NdbOptions.TLS_CERT.key()
                            + ", "
                            + NdbOptions.TLS_KEY.key()
                            + ": cannot be read as PEM files (the key as PKCS 8)",
                    e);
        }
    }

    /** The token, or null where none is configured. */
    static CallCredentials credentials(NdbSettings settings) throws IOException {
        if (settings.tokenFile() == null) {
            return null;
        }
        try {
            String token =
                    new String(
                            Files.readAllBytes(Path.of(settings.tokenFile())),
                            StandardCharsets.UTF_8);
            return new BearerToken(token.trim());
        } catch (IOException e) {
            throw new IOException(
                    NdbOptions.TOKEN_FILE.key() + ": cannot read " + settings.tokenFile(), e);
        }
    }

    /** Sends a token with each call. */
    private static final class BearerToken extends CallCredentials {
        private static final Metadata.Key<String> AUTHORIZATION =
                Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

        private final String token;

        private BearerToken(String token) {
            this.token = token;
        }

        @Override
        public void applyRequestMetadata(
                RequestInfo request, Executor executor, MetadataApplier applier) {
            Metadata headers = new Metadata();
            headers.put(AUTHORIZATION, "Bearer " + token);
            applier.apply(headers);
        }
    }
}
