import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.basex.core.Context;
import org.basex.core.MainOptions;
import org.basex.core.cmd.CreateDB;
import org.basex.query.QueryException;
import org.basex.query.QueryProcessor;
import org.basex.query.value.Value;
import org.basex.query.value.item.ANum;
import org.basex.query.value.item.Bln;
import org.basex.query.value.item.Item;
import org.basex.query.value.node.DBNode;

/**
 * Answers expressions for xpath-basex.py, in its form: `doc XML` makes the document of the
 * expressions that follow, `case CONTEXT EXPRESSION` is answered by a line.
 */
final class XPathBaseX {
  private static final String PROLOG =
      "declare namespace p = 'urn:p'; declare namespace q = 'urn:q'; ";

  private XPathBaseX() {}

  public static void main(final String[] arguments) throws Exception {
    final Context context = new Context();
    final MainOptions options = context.options;
    options.set(MainOptions.CHOP, false);
    options.set(MainOptions.MAINMEM, true);
    final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    final BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = requests.readLine()) != null;) {
      final String[] fields = line.split("\t", -1);
      if (fields[0].equals("doc")) {
        new CreateDB("d", fields[1]).execute(context);
      } else {
        answers.println(answer(context, Integer.parseInt(fields[1]), fields[2]));
      }
    }
    context.close();
  }

  private static String answer(final Context context, final int node, final String expression) {
    try (QueryProcessor processor = new QueryProcessor(PROLOG + expression, context)) {
      // The position of a node in the table of BaseX is its number in document order.
      processor.context(new DBNode(context.data(), node));
      return describe(processor.value());
    } catch (final QueryException error) {
      return "error " + new String(error.qname().local(), StandardCharsets.UTF_8);
    }
  }

  private static String describe(final Value value) throws QueryException {
    final StringBuilder nodes = new StringBuilder("nodes");
    for (final Item item : value) {
      if (item instanceof DBNode) {
        nodes.append(' ').append(((DBNode) item).pre());
      } else if (item instanceof ANum) {
        final double number = item.dbl(null);
        final long bits = Double.doubleToLongBits(number);
        return Double.isNaN(number) ? "number NaN" : String.format("number %016x", bits);
      } else if (item instanceof Bln) {
        return "boolean " + item.bool(null);
      } else {
        final String text = new String(item.string(null), StandardCharsets.UTF_8);
        return "string " + text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t");
      }
    }
    return nodes.toString();
  }
}
