// What a user of a generated client does first: begin, commit a write and a delete, read the log. Fields that are not set
// keep the defaults of the generator.

import kotlin.system.exitProcess
import org.openapitools.client.apis.LogApi
import org.openapitools.client.apis.TransactionsApi
import org.openapitools.client.models.BeginRequest
import org.openapitools.client.models.CommitRequest
import org.openapitools.client.models.TxnOutcome
import org.openapitools.client.models.TxnState
import org.openapitools.client.models.Write
import org.openapitools.client.models.WriteOp

fun commit(transactions: TransactionsApi, write: Write): TxnOutcome {
    val id = transactions.begin(BeginRequest()).txnId
    val outcome = transactions.txnCommit(id, CommitRequest(writes = listOf(write)))
    check(outcome.status == TxnState.committed) { outcome }
    return outcome
}

fun main(arguments: Array<String>) {
    val (url, key) = arguments
    val transactions = TransactionsApi(url)
    val put = commit(transactions, Write(op = WriteOp.put, store = "kv", key = key, value = 7))
    val delete = commit(transactions, Write(op = WriteOp.delete, store = "kv", key = key))

    val lsn = put.lsn!!.getValue("kv").toLong()
    val page = LogApi(url).logPull(store = "kv", after = (lsn - 1).toString())
    val record = page.records[0]
    check(record.txnId == put.txnId) { record }
    check(record.writes[0].key == key) { record }
    check((record.writes[0].value as Number).toInt() == 7) { record }
    check(delete.lsn!!.getValue("kv").toLong() <= page.headLsn.toLong()) { page }
    println("committed and read $key")
    exitProcess(0)
}
