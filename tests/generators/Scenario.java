// What a user of a generated client does first: begin, commit a write and a delete, read the log. Fields that are not set
// keep the defaults of the generator: empty lists and maps, null. CONNECT is the method that sets the server's address.

import org.openapitools.client.ApiClient;
import org.openapitools.client.api.LogApi;
import org.openapitools.client.api.TransactionsApi;
import org.openapitools.client.model.BeginRequest;
import org.openapitools.client.model.CommitRequest;
import org.openapitools.client.model.LogPage;
import org.openapitools.client.model.LogRecord;
import org.openapitools.client.model.TxnOutcome;
import org.openapitools.client.model.TxnState;
import org.openapitools.client.model.Write;
import org.openapitools.client.model.WriteOp;

public final class Scenario {
    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient();
        client.CONNECT(arguments[0]);
        TransactionsApi transactions = new TransactionsApi(client);
        Write write = new Write().store("kv").key(arguments[1]);
        TxnOutcome put = commit(transactions, write.op(WriteOp.PUT).value(7));
        TxnOutcome delete = commit(transactions, new Write().store("kv").key(arguments[1]).op(WriteOp.DELETE));

        long lsn = Long.parseLong(put.getLsn().get("kv"));
        LogPage page = new LogApi(client).logPull("kv", String.valueOf(lsn - 1), null, null, null, null, null);
        LogRecord record = page.getRecords().get(0);
        check(record.getTxnId().equals(put.getTxnId()), record);
        check(record.getWrites().get(0).getKey().equals(arguments[1]), record);
        check(((Number) record.getWrites().get(0).getValue()).intValue() == 7, record);
        check(Long.parseLong(delete.getLsn().get("kv")) <= Long.parseLong(page.getHeadLsn()), page);
        System.out.println("committed and read " + arguments[1]);
        System.exit(0);
    }

    private static TxnOutcome commit(TransactionsApi transactions, Write write) throws Exception {
        String id = transactions.begin(new BeginRequest()).getTxnId();
        TxnOutcome outcome = transactions.txnCommit(id, new CommitRequest().addWritesItem(write), null, null);
        check(outcome.getStatus() == TxnState.COMMITTED, outcome);
        return outcome;
    }

    private static void check(boolean holds, Object found) {
        if (!holds) {
            throw new IllegalStateException(String.valueOf(found));
        }
    }
}
