import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.basex.core.Context;
import org.basex.core.MainOptions;
import org.basex.core.cmd.CreateDB;
import org.basex.core.cmd.Open;
import org.basex.core.cmd.XQuery;
import org.basex.io.serial.Serializer;
import org.basex.io.serial.SerializerOptions;
import org.basex.query.QueryProcessor;
import org.basex.query.iter.Iter;
import org.basex.query.value.Value;
import org.basex.query.value.item.Item;
import org.basex.query.value.node.ANode;
import org.basex.query.value.node.DBNode;
import org.basex.query.value.seq.StrSeq;
import org.basex.util.list.TokenList;

/**
 * Answers the requests of bench/xml_basex.py with BaseX, in this process: the same ones, with the
 * same digests, as crates/xml/examples/beside_basex.rs, whose head lists them. There is no `locks`
 * and no `size`, and a walk has one way. `load` takes the name of the database and whether updates keep its
 * indexes, too. `open` makes another one the database of the requests that follow.
 */
final class Peer {
  private final Context context = new Context();

  private long nodes;
  private long hash;

  private interface Pass {
    void run() throws Exception;
  }

  public static void main(final String[] arguments) throws Exception {
    final Peer peer = new Peer();
    final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    // BaseX itself must not write among the answers.
    System.setOut(System.err);
    final BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = requests.readLine()) != null;) {
      String answer;
      try {
        answer = "ok\t" + peer.answer(line.split("\t", -1));
      } catch (final Exception error) {
        answer = "error\t" + String.valueOf(error).replaceAll("\\s+", " ");
      }
      answers.println(answer);
    }
    peer.context.close();
  }

  private String answer(final String[] fields) throws Exception {
    switch (fields[0]) {
      case "load":
        return load(fields[1], fields[2], fields[3].equals("updated"));
      case "open":
        new Open(fields[1]).execute(context);
        return "";
      case "nodes":
        final String[] queries = Arrays.copyOfRange(fields, 3, fields.length);
        return measured(fields[2], () -> {
          for (final String query : queries) {
            try (QueryProcessor processor = new QueryProcessor(query, context)) {
              consume(fields[1], processor.iter());
            }
          }
        });
      case "bound":
        final TokenList list = new TokenList();
        for (int index = 4; index < fields.length; index++) list.add(fields[index]);
        final Value values = StrSeq.get(list);
        final String query = "declare variable $values external; for $v in $values return "
            + fields[3];
        return measured(fields[2], () -> {
          try (QueryProcessor processor = new QueryProcessor(query, context)) {
            processor.bind("values", values);
            consume(fields[1], processor.iter());
          }
        });
      case "walk":
        final long limit = Long.parseLong(fields[3]);
        return measured(fields[2], () -> walk(new DBNode(context.data(), 0), limit));
      case "insert":
      case "delete":
        return change(fields[0], Integer.parseInt(fields[2]), Integer.parseInt(fields[3]));
      case "dump":
        return dump(fields[1], fields[2], fields[3]);
      case "explain":
        try (QueryProcessor processor = new QueryProcessor(fields[1], context)) {
          processor.compile();
          return processor.qc.root.toString().replaceAll("\\s+", " ");
        }
      default:
        throw new IllegalArgumentException("this request is unknown");
    }
  }

  private String load(final String file, final String name, final boolean keepsIndexes)
      throws Exception {
    final MainOptions options = context.options;
    options.set(MainOptions.CHOP, false);
    options.set(MainOptions.TEXTINDEX, true);
    options.set(MainOptions.ATTRINDEX, true);
    options.set(MainOptions.UPDINDEX, keepsIndexes);
    final long start = System.nanoTime();
    new CreateDB(name, file).execute(context);
    return seconds(start) + "\t0";
  }

  private static double seconds(final long start) {
    return (System.nanoTime() - start) / 1e9;
  }

  /** Repeats a pass until the time is over, at least once. */
  private String measured(final String time, final Pass pass) throws Exception {
    final double limit = Double.parseDouble(time);
    long passes = 0;
    long first = 0;
    final long start = System.nanoTime();
    double taken;
    do {
      nodes = 0;
      hash = 0;
      pass.run();
      if (passes++ == 0) first = hash;
      if (first != hash) throw new IllegalStateException("two passes have different answers");
      taken = seconds(start);
    } while (taken < limit);
    return taken + "\t" + passes + "\t" + nodes + "\t" + String.format("%016x", hash);
  }

  private void add(final long value) {
    nodes++;
    hash = hash * 31 + value;
  }

  private void addText(final byte[] text) {
    final int length = text.length;
    final long first = length == 0 ? 0 : text[0] & 0xff;
    final long last = length == 0 ? 0 : text[length - 1] & 0xff;
    add((long) length << 16 | first << 8 | last);
  }

  /** The name of an element or attribute; nothing for other nodes. */
  private static byte[] name(final ANode node) {
    final byte[] name = node.name();
    return name == null ? new byte[0] : name;
  }

  private void consume(final String consumer, final Iter items) throws Exception {
    final ByteArrayOutputStream text = new ByteArrayOutputStream();
    for (Item item; (item = items.next()) != null;) {
      final ANode node = (ANode) item;
      switch (consumer) {
        case "names":
          addText(name(node));
          break;
        case "strings":
          addText(node.string());
          break;
        case "xml":
          text.reset();
          write(node, text);
          add(0);
          break;
        default:
          throw new IllegalArgumentException("a consumer is names, strings or xml");
      }
    }
  }

  private static void write(final ANode node, final OutputStream output) throws Exception {
    final SerializerOptions options = new SerializerOptions();
    options.set(SerializerOptions.INDENT, org.basex.util.options.Options.YesNo.NO);
    final Serializer serializer = Serializer.get(output, options);
    serializer.serialize(node);
    serializer.close();
  }

  private void walk(final ANode node, final long limit) {
    for (final ANode child : node.childIter()) {
      if (nodes == limit) return;
      switch (child.kind()) {
        case org.basex.data.Data.ELEM:
          add(1);
          walk(child.finish(), limit);
          break;
        case org.basex.data.Data.TEXT:
          add(2);
          break;
        default:
          add(3);
      }
    }
  }

  private String dump(final String consumer, final String file, final String query)
      throws Exception {
    long count = 0;
    try (QueryProcessor processor = new QueryProcessor(query, context);
        OutputStream output = new BufferedOutputStream(new FileOutputStream(file), 1 << 16)) {
      final Iter items = processor.iter();
      for (Item item; (item = items.next()) != null; count++) {
        final ANode node = (ANode) item;
        switch (consumer) {
          case "names":
            output.write(name(node));
            break;
          case "strings":
            output.write(node.string());
            break;
          default:
            write(node, output);
        }
        output.write('\n');
      }
    }
    return String.valueOf(count);
  }

  /** Inserts a bidder into an auction, or deletes it again, in a query for each number. */
  private String change(final String change, final int from, final int count) throws Exception {
    final long start = System.nanoTime();
    for (int number = from; number < from + count; number++) {
      final String mark = "mark" + number;
      final String query = change.equals("insert")
          ? "insert node <bidder mark='" + mark + "'><date>07/31/2001</date><increase>" + number
              + "</increase></bidder> as last into //open_auction[@id='open_auction" + number
              + "']"
          : "delete node //bidder[@mark='" + mark + "']";
      new XQuery(query).execute(context);
    }
    return seconds(start) + "\t" + count;
  }
}
